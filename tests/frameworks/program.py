"""For the programs of the matrix: areas, what they see, and what is written for matrix.py.

A program is run as `program.py AREA` with PROGRAM_RESULT naming the file for its result. Each of its areas is a function
under @area that returns what it saw: the same with and without the library. A wrong byte is an AssertionError.
"""
import json
import os
import random
import sys
import traceback

MIB = 1 << 20
AREAS = {}
result = {"seen": {}, "counts": {}, "bytes": {}}


class Skip(Exception):
    """This area cannot run here."""


def area(function):
    AREAS[function.__name__] = function
    return function


def count(entry, number=1):
    """The program made that many allocations by this entry point: the report must have the same number."""
    result["counts"][entry] = result["counts"].get(entry, 0) + number


def content(size, seed):
    """Bytes, the same for the same size and seed."""
    return random.Random(seed).randbytes(size)


def sizes(number, largest, seed):
    generator = random.Random(seed)
    return [generator.randint(1, largest) for _ in range(number)]


def main():
    try:
        result["seen"] = AREAS[sys.argv[1]]() or {}
    except Skip as reason:
        result["skip"] = str(reason)
    except BaseException:  # pylint: disable=broad-exception-caught
        result["error"] = traceback.format_exc()
    with open(os.environ["PROGRAM_RESULT"], "w", encoding="utf-8") as stream:
        json.dump(result, stream)
