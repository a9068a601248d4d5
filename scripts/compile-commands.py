#!/usr/bin/env python3
"""Writes compile_commands.json.

usage: compile-commands.py OUTPUT {--core|--cuda} COMMAND... -- SOURCE... [...]
Each group gives one compiler command line and the sources it compiles.
"""
import json
import os
import sys


def main(arguments):
    output, rest = arguments[0], arguments[1:]
    entries = []
    while rest:
        group, rest = rest[1:], []
        ends = [group.index(marker) for marker in ("--core", "--cuda") if marker in group]
        if ends:
            group, rest = group[:min(ends)], group[min(ends):]
        split = group.index("--")
        command, sources = group[:split], group[split + 1:]
        for source in sources:
            entries.append({"directory": os.getcwd(), "file": source,
                            "arguments": command + ["-c", source]})
    with open(output, "w", encoding="utf-8") as stream:
        json.dump(entries, stream, indent=1)
        stream.write("\n")


main(sys.argv[1:])
