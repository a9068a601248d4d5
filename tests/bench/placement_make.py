#!/usr/bin/env python3
"""Placement problems whose best peak is known: it is the most that is alive at once.

usage: placement_make.py KIND COUNT SEED > problem.csv

guillotine  a rectangle of time and memory cut COUNT - 1 times: a perfect packing
wide        the same on a fine grid, where hardly two cuts are at one time
pinwheel    wide, with pieces cut to five around each other as well: no sequence of cuts makes them
nested      lifetimes within lifetimes, as forward and backward passes have them
staircase   each buffer begins when the one before ends, in lanes
aligned     guillotine in units of 256 bytes, to which all offsets are aligned
fixed       guillotine in which one buffer of eight is held where it was cut
"""
import random
import sys


def pinwheel(piece, rng):
    """Five pieces around each other, either way round."""
    lower, upper, offset, size = piece
    early = rng.randrange(lower + 1, upper - 1)
    late = rng.randrange(early + 1, upper)
    low = rng.randrange(1, size - 1)
    high = rng.randrange(low + 1, size)
    pieces = [(lower, late, 0, low), (late, upper, 0, high), (early, upper, high, size - high),
              (lower, early, low, size - low), (early, late, low, high - low)]
    if rng.random() < 0.5:
        pieces = [(lo, up, size - at - of, of) for lo, up, at, of in pieces]
    return [(lo, up, offset + at, of) for lo, up, at, of in pieces]


def cut(count, rng, time, memory, pinwheels):
    """Cuts the largest of a few pieces again and again; yields (lower, upper, offset, bytes)."""
    pieces = [(0, time, 0, memory)]
    while len(pieces) < count:
        at = max((rng.randrange(len(pieces)) for _ in range(3)),
                 key=lambda i: (pieces[i][1] - pieces[i][0]) * pieces[i][3])
        lower, upper, offset, size = pieces[at]
        if pinwheels > 0 and len(pieces) + 4 <= count and upper - lower > 2 and size > 2 and rng.random() < pinwheels:
            pieces[at:at + 1] = pinwheel(pieces[at], rng)
        elif upper - lower > 1 and (size == 1 or rng.random() < 0.5):
            time_cut = rng.randrange(lower + 1, upper)
            pieces[at] = (lower, time_cut, offset, size)
            pieces.append((time_cut, upper, offset, size))
        elif size > 1:
            size_cut = rng.randrange(1, size)
            pieces[at] = (lower, upper, offset, size_cut)
            pieces.append((lower, upper, offset + size_cut, size - size_cut))
    rng.shuffle(pieces)
    return pieces


def guillotine(count, rng):
    side = max(64, int(count**0.5) * 16)
    return cut(count, rng, side * 4, side, 0)


def wide(count, rng):
    return cut(count, rng, 1 << 32, 1 << 32, 0)


def pinwheels(count, rng):
    return cut(count, rng, 1 << 32, 1 << 32, 0.3)


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
    makers = {"nested": nested, "staircase": staircase, "wide": wide, "pinwheel": pinwheels}
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
