#!/usr/bin/env python3
"""Placement problems whose best peak is known: it is the most that is alive at once.

usage: placement_make.py KIND COUNT SEED > problem.csv

guillotine  a rectangle of time and memory cut COUNT - 1 times: a perfect packing
nested      lifetimes within lifetimes, as forward and backward passes have them
staircase   each buffer begins when the one before ends, in lanes
aligned     guillotine in units of 256 bytes, to which all offsets are aligned
fixed       guillotine in which one buffer of eight is held where it was cut
"""
import random
import sys


def guillotine(count, rng):
    """Cuts the largest of a few pieces again and again; yields (lower, upper, offset, bytes)."""
    side = max(64, int(count**0.5) * 16)
    pieces = [(0, side * 4, 0, side)]
    while len(pieces) < count:
        at = max((rng.randrange(len(pieces)) for _ in range(3)),
                 key=lambda i: (pieces[i][1] - pieces[i][0]) * pieces[i][3])
        lower, upper, offset, size = pieces[at]
        if upper - lower > 1 and (size == 1 or rng.random() < 0.5):
            cut = rng.randrange(lower + 1, upper)
            pieces[at] = (lower, cut, offset, size)
            pieces.append((cut, upper, offset, size))
        elif size > 1:
            cut = rng.randrange(1, size)
            pieces[at] = (lower, upper, offset, cut)
            pieces.append((lower, upper, offset + cut, size - cut))
    rng.shuffle(pieces)
    return pieces


def nested(count, rng):
    """Each lives within the one before it, or begins after it: a stack."""
    rows, stack, time, top = [], [], 0, 0
    for _ in range(count):
        while stack and rng.random() < 0.5:
            lower, offset, size = stack.pop()
            time += 1
            rows.append((lower, time, offset, size))
            top = offset
        size = rng.randrange(1, 1 << rng.randrange(1, 24))
        stack.append((time, top, size))
        top += size
        time += 1
    while stack:
        lower, offset, size = stack.pop()
        time += 1
        rows.append((lower, time, offset, size))
    return rows


def staircase(count, rng):
    """Lanes of one height each; in a lane one buffer follows the other."""
    lanes = max(1, int(count**0.5))
    rows, offset = [], 0
    for lane in range(lanes):
        size, time = rng.randrange(1, 1 << 20), 0
        for _ in range(count // lanes + (lane < count % lanes)):
            upper = time + rng.randrange(1, 100)
            rows.append((time, upper, offset, size))
            time = upper
        offset += size
    rng.shuffle(rows)
    return rows


def main():
    kind, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    makers = {"nested": nested, "staircase": staircase}
    rows = makers.get(kind, guillotine)(count, rng)
    extra = {"aligned": ",alignment", "fixed": ",offset"}.get(kind, "")
    print(f"id,lower,upper,size{extra}")
    for i, (lower, upper, offset, size) in enumerate(rows):
        if kind == "aligned":
            print(f"{i},{lower},{upper},{size * 256},256")
        elif kind == "fixed":
            print(f"{i},{lower},{upper},{size},{offset if i % 8 == 0 else ''}")
        else:
            print(f"{i},{lower},{upper},{size}")


if __name__ == "__main__":
    main()
