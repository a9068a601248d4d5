#!/usr/bin/env python3
"""Placement problems of every size.

usage: placement_make.py KIND COUNT SEED > problem.csv

Those whose best peak is known, as it is the most that is alive at once:

guillotine  a rectangle of time and memory cut COUNT - 1 times: a perfect packing
wide        the same on a fine grid, where hardly two cuts are at one time
pinwheel    wide, with pieces cut to five around each other as well: no sequence of cuts makes them
nested      lifetimes within lifetimes, as forward and backward passes have them
staircase   each buffer begins when the one before ends, in lanes
aligned     guillotine in units of 256 bytes, to which all offsets are aligned
fixed       guillotine in which one buffer of eight is held where it was cut
same        buffers of one size, of any life

Those whose best peak is not known:

random      lives and sizes of every magnitude
serve       requests hold caches as long as they run, beside the short-lived buffers of their steps
classes     the same with caches and buffers of few sizes, at any time: what a plain best fit places well
ladder      lists that grow by half: each array begins before the one it replaces ends
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
            pieces[at], *others = pinwheel(pieces[at], rng)
            pieces += others
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


def life(rng, magnitudes):
    """A whole number from 1 on, of any magnitude below 2 ** magnitudes."""
    return 1 + rng.randrange(1 << rng.randrange(1, magnitudes))


def same(count, rng):
    starts = [rng.randrange(10 * count) for _ in range(count)]
    return [(lower, lower + life(rng, 16), 0, 4096) for lower in starts]


def random_lives(count, rng):
    starts = [rng.randrange(10 * count) for _ in range(count)]
    return [(lower, lower + life(rng, 16), 0, life(rng, 20)) for lower in starts]


def serve(count, rng):
    """One buffer of ten is a request's cache; the others are of 64 sizes, and live a few steps."""
    sizes = [256 * life(rng, 12) for _ in range(64)]
    rows = []
    for time in range(count):
        if rng.random() < 0.1:
            tokens = 16 * life(rng, 9)
            rows.append((time, time + 1 + int(rng.expovariate(1 / 2000)), 0, tokens * 2048))
        else:
            rows.append((time, time + life(rng, 5), 0, rng.choice(sizes)))
    return rows


def classes(count, rng):
    """Caches of one to four pages and buffers of sixteen sizes."""
    sizes = [256 << rng.randrange(8) for _ in range(16)]
    rows, time = [], 0.0
    for _ in range(count):
        time += rng.expovariate(1)
        is_cache = rng.random() < 0.2
        size = 65536 * rng.randrange(1, 5) if is_cache else rng.choice(sizes)
        length = rng.expovariate(1 / 3000 if is_cache else 1 / 20)
        lower = int(1000 * time)
        rows.append((lower, lower + 1 + int(1000 * length), 0, size))
    return rows


def ladder(count, rng):
    """Sixteen lists at a time; a list that is long enough is dropped, and another begun."""
    rows, lists = [], [None] * 16
    for time in range(count):
        at = rng.randrange(len(lists))
        size = 256 * rng.randrange(1, 64)
        if lists[at] is not None:
            lower, before, left = lists[at]
            rows.append((lower, time + 1, 0, before))
            size = before * 3 // 2 if left > 0 else size
        left = lists[at][2] - 1 if lists[at] is not None and lists[at][2] > 0 else rng.randrange(1, 16)
        lists[at] = (time, size, left)
    rows += [(lower, count + 1, 0, size) for lower, size, _ in filter(None, lists)]
    return rows[:count]


MAKERS = {"nested": nested, "staircase": staircase, "wide": wide, "pinwheel": pinwheels, "same": same, "random": random_lives,
          "serve": serve, "classes": classes, "ladder": ladder}


def make(kind, count, seed):
    """The rows (lower, upper, bytes)."""
    return [(lower, upper, size) for lower, upper, _, size in MAKERS.get(kind, guillotine)(count, random.Random(seed))]


def main():
    kind, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rows = MAKERS.get(kind, guillotine)(count, random.Random(seed))
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
