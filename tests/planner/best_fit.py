#!/usr/bin/env python3
"""Online best fit with coalescing, as plain allocators place buffers: the oracle for plans of problems.

usage: best_fit.py problem.csv [file|large|long]

Buffers are placed in the order of their starts, without knowledge of later ones, each in the smallest hole that is large enough,
the lowest of several, else at the top. Buffers that start at one time come in the order of the file, or the largest or the
longest-lived first.
Prints the peak and the most bytes that are alive at once.
"""
import bisect
import csv
import sys


class Heap:
    """Holes by size and by both ends; everything from `top` on is free."""

    def __init__(self):
        self.holes = []  # (bytes, offset), sorted
        self.by_begin = {}  # offset → bytes
        self.by_end = {}
        self.top = 0
        self.peak = 0

    def add(self, offset, size):
        bisect.insort(self.holes, (size, offset))
        self.by_begin[offset] = size
        self.by_end[offset + size] = size

    def remove(self, offset, size):
        del self.holes[bisect.bisect_left(self.holes, (size, offset))]
        del self.by_begin[offset]
        del self.by_end[offset + size]

    def take(self, size):
        at = bisect.bisect_left(self.holes, (size, 0))
        if at == len(self.holes):
            self.top += size
            self.peak = max(self.peak, self.top)
            return self.top - size
        bytes_, offset = self.holes[at]
        self.remove(offset, bytes_)
        if bytes_ > size:
            self.add(offset + size, bytes_ - size)
        return offset

    def give(self, offset, size):
        if offset in self.by_end:
            below = self.by_end[offset]
            self.remove(offset - below, below)
            offset, size = offset - below, size + below
        if offset + size in self.by_begin:
            above = self.by_begin[offset + size]
            self.remove(offset + size, above)
            size += above
        if offset + size == self.top:
            self.top = offset
        else:
            self.add(offset, size)


def best_fit(rows, first="file"):
    """The peak of rows (lower, upper, bytes)."""
    ties = {"file": lambda row: 0, "large": lambda row: -row[2], "long": lambda row: -row[1]}[first]
    starts = sorted((row for row in rows if row[2] > 0), key=lambda row: (row[0], ties(row)))
    heap, live = Heap(), {}
    order = sorted(range(len(starts)), key=lambda i: starts[i][1])
    ended = 0
    for i, (lower, _, size) in enumerate(starts):
        while starts[order[ended]][1] <= lower:
            heap.give(live.pop(order[ended]), starts[order[ended]][2])
            ended += 1
        live[i] = heap.take(size)
    return heap.peak


def bound(rows):
    """The most bytes alive at once."""
    changes = sorted([(upper, -size) for _, upper, size in rows] + [(lower, size) for lower, _, size in rows])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def read(path):
    with open(path, encoding="utf-8") as file:
        return [(int(row["lower"]), int(row["upper"]), int(row["size"])) for row in csv.DictReader(file)]


def main():
    rows = read(sys.argv[1])
    print(best_fit(rows, *sys.argv[2:3]), bound(rows))


if __name__ == "__main__":
    main()
