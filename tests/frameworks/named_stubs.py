"""Stubs for libraries that a framework opens itself, by dlopen: it has the functions' names as strings.

make_all(OUT, COMPILER, RUNTIME_ARCHIVE, SONAMES, LIBRARIES): SONAMES has the library of each prefix. A function does what
stubs/ here or in tests/torch gives it to do, or returns 0.
"""
import os
import pathlib
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "torch"))
import stubs  # pylint: disable=wrong-import-position

HERE = pathlib.Path(__file__).resolve().parent


def names_of(prefixes, libraries):
    """Every string of the files that begins with one of the prefixes and has only letters, digits and _."""
    pattern = re.compile(rb"(?<=\0)(?:" + "|".join(prefixes).encode() + rb")[A-Z_a-z0-9]+(?=\0)")
    names = set()
    for library in libraries:
        with open(library, "rb") as stream:
            names.update(match.group().decode() for match in pattern.finditer(stream.read()))
    return names


def make_all(out, compiler, archive, sonames, libraries):
    os.makedirs(out, exist_ok=True)
    names = names_of(sonames, libraries)
    for prefix in sorted(sonames, key=len, reverse=True):  # cublasLt before cublas
        found = {name for name in names if name.startswith(prefix)}
        names -= found
        # A part of ours includes PyTorch's of the same name.
        parts_in = HERE if (HERE / "stubs" / f"{prefix}.c").exists() else stubs.HERE
        found = found or {prefix + "Unused"}  # a library that is wanted for no function
        stubs.make(sonames[prefix], {sonames[prefix]: found}, pathlib.Path(out), compiler, archive, parts_in)
