#!/usr/bin/env python3
"""Prints README's table of options, made from core/options.def by the C preprocessor."""
import os
import re
import subprocess
import sys

ROWS = b"""
#define GC_OPTION(field, name, type, argument, default, minimum, maximum, bad, served, accepts, help) \\
    ROW name ; default ; bad ; served ; accepts ; help END
#include "core/options.def"
"""


def text(tokens):
    """The value of adjacent string literals."""
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', tokens)).replace('\\"', '"').replace("|", "\\|")


def split(row):
    """Fields at semicolons outside string literals."""
    return [field.strip() for field in re.findall(r'((?:"(?:[^"\\]|\\.)*"|[^;"])+)(?:;|$)', row)]


def main():
    command = [os.environ.get("CC", "gcc"), "-E", "-P", "-I.", "-x", "c", "-"]
    result = subprocess.run(command, input=ROWS, stdout=subprocess.PIPE, check=True)
    rows = re.findall(r"ROW (.*?) END", result.stdout.decode().replace("\n", " "))
    if not rows:
        sys.exit("core/options.def has no rows")
    print("| variable | accepts | default | meaning |")
    print("|---|---|---|---|")
    for name, default, bad, served, accepts, help_text in map(split, rows):
        notes = []
        if bad == "CLOSED":
            notes.append("a bad value closes CUDA initialisation")
        if served == "LATER":
            notes.append("**checked, but not served by this version**")
        meaning = "; ".join([text(help_text), *notes])
        value = f"`{text(default)}`" if text(default) else "none"
        print(f"| `GPUCACHE_{name}` | {text(accepts)} | {value} | {meaning} |")


main()
