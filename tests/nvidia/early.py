#!/usr/bin/env python3
"""The simulated driver's table of what a driver checks before it looks whether it is initialised, from NVIDIA's own.

usage: early.py NEW FAILED > tests/simcuda/driver/early.def
NEW and FAILED are what caller.c prints of NVIDIA's driver before cuInit, and after it failed. For each function the
shortest list of checks is looked for, by greed, that explains all its answers: an argument that is null or zero, given, or has all bits set, gives a code; no check applies: CUDA_ERROR_NOT_INITIALIZED. Per-thread names share the rows of
the plain ones. Calls that end the process teach nothing.
"""
import collections
import pathlib
import sys

import functions

CODES = {0: "CUDA_SUCCESS", 1: "CUDA_ERROR_INVALID_VALUE", 100: "CUDA_ERROR_NO_DEVICE", 201: "CUDA_ERROR_INVALID_CONTEXT",
         400: "CUDA_ERROR_INVALID_HANDLE", 500: "CUDA_ERROR_NOT_FOUND"}
# Functions of the simulated driver that answer by themselves in any state.
ANYTIME = {"cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString", "cuGetProcAddress", "cuGetProcAddress_v2",
           "cuMemGetAddressRange", "cuMemGetAddressRange_v2", "cuUserObjectCreate", "cuUserObjectRetain",
           "cuUserObjectRelease"}
# An answer of success is of a handle to garbage.
GARBAGE = {"cuGraphKernelNodeGetParams", "cuGraphKernelNodeGetParams_v2"}
HEAD = """\
/* What a driver checks before it looks whether it is initialised: measured on NVIDIA's, of CUDA 12.2 (tests/nvidia/early.py
 * makes these rows). All other calls return CUDA_ERROR_NOT_INITIALIZED until cuInit has succeeded.
 *
 * ANYTIME(function): its body answers in every state.
 * EARLY(function, when, code, arguments): the first row counts of which an argument is as it says: ZERO (null, zero),
 *     GIVEN (not ZERO) or FULL (all bits set); ALWAYS: any. `when`: NEW before the first cuInit, TRIED after it failed, BOTH.
 *     CUDA_SUCCESS: its body answers. */
"""


def value_of(kind, call, index):
    """zero, one, full or given: what caller.c passes as the argument."""
    base, _, change = call.partition(",")
    position, _, value = change.partition("=")
    if position == str(index):
        return "zero" if value == "null" else value
    if base == "null":
        return "zero"
    if kind == "P":
        return "given"
    if kind == "H":
        return "given" if base in ("handles", "odd") else "zero"
    return "full" if base == "odd" else "one" if kind == "N" and base != "zero" else "zero"


def holds(condition, kinds, call):
    word, index = condition
    if word == "ALWAYS":
        return True
    value = value_of(kinds[index - 1], call, index)
    return value != "zero" if word == "GIVEN" else value == word.lower()


def conditions_of(kinds):
    yield ("ALWAYS", 0)
    for order in ("ZERO P", "ZERO H", "GIVEN H", "FULL N", "GIVEN N", "ZERO N", "FULL S", "ZERO S"):
        word, kind = order.split()
        for index in range(len(kinds), 0, -1):
            if kinds[index - 1] == kind:
                yield (word, index)


def explain(name, kinds, answers):
    """[(code, [condition])]"""
    left, found = dict(answers), []
    while any(code != 3 for code in left.values()):
        best = None
        for condition in conditions_of(kinds):
            seen = [code for call, code in left.items() if holds(condition, kinds, call)]
            if seen and len(set(seen)) == 1 and seen[0] != 3 and (best is None or len(seen) > best[0]):
                best = (len(seen), condition, seen[0])
        if best is None:
            print(f"{name}: not explained: {left}", file=sys.stderr)
            break
        _, condition, code = best
        left = {call: c for call, c in left.items() if not holds(condition, kinds, call)}
        if found and found[-1][0] == code:
            found[-1][1].append(condition)
        else:
            found.append((code, [condition]))
    return found


def read(path):
    answers = collections.defaultdict(dict)
    for line in pathlib.Path(path).read_text().splitlines():
        name, call, result = line.split()
        if result.isdigit():
            answers[name][call] = int(result)
    return answers


def rows_of(name, kinds, new, failed):
    lists = [explain(name, kinds, new), explain(name, kinds, failed)]
    for when, found in (("BOTH", lists[0]),) if lists[0] == lists[1] else (("NEW", lists[0]), ("TRIED", lists[1])):
        for code, conditions in found:
            if code == 0 and name in GARBAGE:
                continue
            words = [w if w == "ALWAYS" else f"{w}({i})" for w, i in sorted(conditions, key=lambda c: c[1])]
            yield f"EARLY({name}, {when}, {CODES[code]}, {' | '.join(words)})"


def main():
    new, failed = read(sys.argv[1]), read(sys.argv[2])
    known = functions.driver_functions(functions.declarations())
    print(HEAD, end="")
    for name in sorted(known):
        plain = name.removesuffix("_ptsz").removesuffix("_ptds")
        if plain in ANYTIME:
            if plain == name:
                print(f"ANYTIME({name})")
        elif plain == name or plain not in known:
            for row in rows_of(plain, known[name].kinds, new[name], failed[name]):
                print(row)
        elif (new[name], failed[name]) != (new[plain], failed[plain]):
            print(f"{name} differs from {plain}", file=sys.stderr)


if __name__ == "__main__":
    main()
