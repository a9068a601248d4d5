#!/usr/bin/env python3
"""The simulated driver's table of what a driver checks before it looks whether it is initialised, from NVIDIA's own.

usage: early.py [--build DIR] > tests/simcuda/driver/early.def

Learns from NVIDIA's driver before cuInit and after it failed: the systematic calls of functions.py, and random ones of a
seed of their own (run.py tests with others). For each function and state a decision list (Rivest 1987) is looked for, by
greed: the condition on one argument that most of the calls fulfil and that all of those answer alike, until all that is
left says CUDA_ERROR_NOT_INITIALIZED. A condition on a word behind a pointer is tried only where the arguments themselves
explain too little. Per-thread names share the rows of the plain ones. Calls that end the process teach nothing.
"""
import argparse
import collections
import functools
import os
import pathlib
import sys
import tempfile

CODES = {0: "CUDA_SUCCESS", 1: "CUDA_ERROR_INVALID_VALUE", 100: "CUDA_ERROR_NO_DEVICE", 200: "CUDA_ERROR_INVALID_IMAGE",
         201: "CUDA_ERROR_INVALID_CONTEXT", 400: "CUDA_ERROR_INVALID_HANDLE", 500: "CUDA_ERROR_NOT_FOUND",
         801: "CUDA_ERROR_NOT_SUPPORTED"}
# Functions of the simulated driver that answer by themselves in any state.
ANYTIME = {"cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString", "cuGetProcAddress", "cuGetProcAddress_v2",
           "cuMemGetAddressRange", "cuMemGetAddressRange_v2", "cuUserObjectCreate", "cuUserObjectRetain",
           "cuUserObjectRelease"}
# An answer of success is of a handle to garbage.
GARBAGE = {"cuGraphKernelNodeGetParams", "cuGraphKernelNodeGetParams_v2"}
SEED, COUNT = 1, 40  # the random calls that are learnt from
LARGE = 63
WORDS = 16  # so many words behind a pointer are looked at
HEAD = """\
/* What a driver checks before it looks whether it is initialised: measured on NVIDIA's, of CUDA 12.2 (tests/nvidia/early.py
 * makes these rows). All other calls return CUDA_ERROR_NOT_INITIALIZED until cuInit has succeeded.
 *
 * The rule behind the rows: null pointers to results, flags that do not exist and null handles that are not streams count
 * before the state does. A stream's handle counts only once cuInit was tried: any but null, CU_STREAM_LEGACY and
 * CU_STREAM_PER_THREAD is invalid then.
 *
 * ANYTIME(function): its body answers in every state.
 * EARLY(function, when, code, conditions): the first row counts of which a condition holds; `when`: NEW before the first
 *     cuInit, TRIED after it failed, BOTH. CUDA_SUCCESS: its body answers. Conditions, of the n-th argument: ZERO(n) null or
 *     zero, ZEROES(n, m) both of two, GIVEN(n) not so, FULL(n) all bits set, WILD(n) a handle above 2, BITS(n, mask) a bit
 *     that the mask lacks, NEEDS(n, mask) not all bits of the mask, EXCEPT(n, set) a number whose bit the set lacks (its last
 *     bit: 63 and all above); ALWAYS: any. WORD_BITS and WORD_EXCEPT(n, offset, …): the same of the 32-bit word there behind
 *     the pointer, FIELD_BITS and FIELD_EXCEPT: of that in the structure.
 */
"""


def number_of(kind, letter, word=None):
    """The argument as a number, or its word there or behind it; None: there is none."""
    if word is not None and kind == "S":
        return functions.word_behind(letter, word)
    if word is not None:
        return None if letter == "0" else functions.word_behind(letter, word)
    if kind == "N":
        return functions.NUMBERS[letter]
    if kind == "S":
        return 0 if letter == "0" else 2 ** 64 - 1 if letter == "f" else 1000
    return int(letter) if letter.isdigit() else 1000


def express(kind, bad, good, at, is_word):
    """The condition that tells these numbers from those, or None."""
    if is_word:
        name = "FIELD" if kind == "S" else "WORD"
        if bad == {0}:
            return f"{name}_EXCEPT({at}, ~1)"
        mask = 0
        for value in good:
            mask |= value
        if all(value & ~mask for value in bad):
            return f"{name}_BITS({at}, {mask:#x})"
        return f"{name}_EXCEPT({at}, {set_of(good):#x})" if separates(bad, good) else None
    if not good:
        return "ALWAYS"
    if bad == {0}:
        return f"ZERO({at})"
    if good == {0}:
        return f"GIVEN({at})"
    if kind == "H":
        return f"WILD({at})" if all(v > 2 for v in bad) and all(v <= 2 for v in good) else None
    if bad == {2 ** 64 - 1}:
        return f"FULL({at})"
    mask = 0
    for value in good:
        mask |= value
    if kind == "N" and max(good) < 256 and all(value & ~mask for value in bad):
        return f"BITS({at}, {mask:#x})"
    needed = functools.reduce(lambda a, b: a & b, good)
    if kind == "N" and needed and all(value & needed != needed for value in bad):
        return f"NEEDS({at}, {needed:#x})"
    return f"EXCEPT({at}, {set_of(good):#x})" if kind == "N" and separates(bad, good) else None


def set_of(values):
    return sum({1 << min(value, LARGE) for value in values})


def separates(bad, good):
    return not set_of(bad) & set_of(good)


def best_condition(kinds, left, places):
    """(rank, condition, code, does it hold?), or None"""
    best = None
    for index, word in places:
        codes = collections.defaultdict(collections.Counter)
        for letters, code in left.items():
            codes[number_of(kinds[index], letters[index], word)][code] += 1
        pure = {v: next(iter(seen)) for v, seen in codes.items() if len(seen) == 1 and v is not None}
        for code in set(pure.values()) - {3}:
            all_bad = {v for v, c in pure.items() if c == code}
            at = str(index + 1) if word is None else f"{index + 1}, {word * 4}"
            for bad in (all_bad, {v for v in all_bad if v > 2}, {v for v in all_bad if v == 0}):
                good = {v for v in codes if v not in bad and v is not None}
                if not bad or (word is not None and not good):
                    continue
                condition = express(kinds[index], bad, good, at, word is not None)
                # A set of single numbers is the last resort: few calls show each of them.
                covered = (bool(condition) and not condition.startswith("EXCEPT"), sum(codes[v].total() for v in bad))
                if condition and (best is None or covered > best[0]):
                    best = (covered, condition, code, lambda letters, i=index, w=word, b=bad:
                            number_of(kinds[i], letters[i], w) in b)
    return best


def best_pair(kinds, left):
    """As best_condition, of two pointers that are null."""
    best = None
    for i in range(len(kinds)):
        for j in range(i + 1, len(kinds)):
            codes = [c for letters, c in left.items() if letters[i] == letters[j] == "0"]
            if kinds[i] == kinds[j] == "P" and len(set(codes)) == 1 and codes[0] != 3 and (
                    best is None or len(codes) > best[0][1]):
                best = ((True, len(codes)), f"ZEROES({i + 1}, {j + 1})", codes[0],
                        lambda letters, i=i, j=j: letters[i] == letters[j] == "0")
    return best


def explain(kinds, answers):
    """([(code, [condition])], the calls that they do not explain)"""
    arguments = [(i, None) for order in "PHNS" for i in range(len(kinds) - 1, -1, -1) if kinds[i] == order]
    arguments += [(i, w) for w in range(WORDS) for i in range(len(kinds)) if kinds[i] == "S"]
    words = [(i, w) for w in range(WORDS) for i in range(len(kinds)) if kinds[i] == "P"]
    left, found = dict(answers), []
    while any(code != 3 for code in left.values()):
        codes = set(left.values())
        if len(codes) == 1:
            best = (len(left), "ALWAYS", next(iter(codes)), lambda letters: True)
        else:
            best = best_condition(kinds, left, arguments) or max(
                filter(None, (best_pair(kinds, left), best_condition(kinds, left, words))), key=lambda b: b[0], default=None)
        if best is None:
            break
        _, condition, code, holds = best
        left = {letters: c for letters, c in left.items() if not holds(letters)}
        if found and found[-1][0] == code:
            found[-1][1].append(condition)
        else:
            found.append((code, [condition]))
    return found, {letters: code for letters, code in left.items() if code != 3}


def rows_of(name, kinds, new, failed):
    lists = []
    for answers in (new, failed):
        found, left = explain(kinds, answers)
        lists.append(found)
        if left:
            print(f"{name}({kinds}): not explained: {left}", file=sys.stderr)
    for when, found in (("BOTH", lists[0]),) if lists[0] == lists[1] else (("NEW", lists[0]), ("TRIED", lists[1])):
        for code, conditions in found:
            if code == 0 and name in GARBAGE:
                continue
            yield f"EARLY({name}, {when}, {CODES[code]}, {', '.join(sorted(conditions))})"


def plain_name(name, known):
    plain = name.removesuffix("_ptsz").removesuffix("_ptds")
    return plain if plain in known else name


def learn(answers, known):
    """The rows, from {state: {(function, letters): result}}."""
    merged = {state: collections.defaultdict(dict) for state in answers}
    for state, calls in answers.items():
        for (name, letters), result in calls.items():
            if result.isdigit():
                old = merged[state][plain_name(name, known)].setdefault(letters, int(result))
                if old != int(result):
                    print(f"{name} {letters}: {result}, its plain name {old}", file=sys.stderr)
    for name in sorted({plain_name(name, known) for name in known}):
        if name.removesuffix("_ptsz").removesuffix("_ptds") in ANYTIME:
            yield f"ANYTIME({name})"
        else:
            yield from rows_of(name, known[name].kinds, merged["new"][name], merged["failed"][name])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2] / "build")
    os.environ["BUILD_DIR"] = str(parser.parse_args().build.resolve())
    global functions
    import functions  # needs BUILD_DIR
    text = functions.declarations()
    known = functions.driver_functions(text)
    listed = [known[name] for name in sorted(known)]
    calls = list(dict.fromkeys(functions.systematic_calls(listed) + functions.random_calls(listed, SEED, COUNT)))
    calls.sort(key=lambda call: call[0])
    answers = {}
    with tempfile.TemporaryDirectory() as work:
        caller = functions.build(work, text, listed, "cuInit")
        for state in ("new", "failed"):
            answers[state] = functions.run_caller(caller, functions.DRIVER, state, calls)
            # A call that ends the process in one state does so in the next.
            calls = [call for call in calls if not answers[state][call].startswith("signal")]
    print(HEAD, end="")
    for row in learn(answers, known):
        print(row)


if __name__ == "__main__":
    main()
