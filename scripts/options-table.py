#!/usr/bin/env python3
"""Prints the options of core/config/options.def, read by the C preprocessor: as the table of docs/options.md, with --man for the manual."""
import os
import re
import subprocess
import sys

ROWS = b"""
#define GC_OPTION(field, name, type, argument, default, minimum, maximum, bad, accepts, help) \\
    ROW name ; default ; bad ; accepts ; help END
#include "core/config/options.def"
"""


def text(tokens):
    """The value of adjacent string literals."""
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', tokens)).replace('\\"', '"').replace("|", "\\|")


def split(row):
    """Fields at semicolons outside string literals."""
    return [field.strip() for field in re.findall(r'((?:"(?:[^"\\]|\\.)*"|[^;"])+)(?:;|$)', row)]


def markdown(rows):
    print("| variable | accepts | default | meaning |")
    print("|---|---|---|---|")
    for name, default, bad, accepts, help_text in rows:
        meaning = "; ".join([text(help_text), *notes(bad, "**")])
        value = f"`{text(default)}`" if text(default) else "none"
        print(f"| `GPUCACHE_{name}` | {text(accepts)} | {value} | {meaning} |")


def roff(words):
    """Text that roff takes as it stands."""
    return words.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")


def manual(rows):
    for name, default, bad, accepts, help_text in rows:
        meaning = "; ".join([text(help_text), *notes(bad, "")])
        value = f" Default: {text(default)}." if text(default) else ""
        print(f".TP\n.B GPUCACHE_{name}")
        print(roff(f"{meaning}. Accepts {text(accepts)}.{value}"))


def notes(bad, mark):
    found = []
    if bad == "CLOSED":
        found.append("an invalid value makes cuInit fail (CUDA_ERROR_INVALID_VALUE)")
    if bad == "GATED":
        found.append("an invalid value makes cuInit fail (CUDA_ERROR_INVALID_VALUE) where `GPUCACHE_GATE` is neither off nor warn" if mark else
                     "an invalid value makes cuInit fail (CUDA_ERROR_INVALID_VALUE) where GPUCACHE_GATE is neither off nor warn")
    return found


def main():
    command = [os.environ.get("CC", "gcc"), "-E", "-P", "-I.", "-x", "c", "-"]
    result = subprocess.run(command, input=ROWS, stdout=subprocess.PIPE, check=True)
    rows = re.findall(r"ROW (.*?) END", result.stdout.decode().replace("\n", " "))
    if not rows:
        sys.exit("core/config/options.def has no rows")
    printer = manual if "--man" in sys.argv[1:] else markdown
    printer([split(row) for row in rows])


main()
