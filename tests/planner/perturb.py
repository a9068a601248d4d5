#!/usr/bin/env python3
"""A trace of which a share of the events is changed: usage: perturb.py TRACE.csv SEED [SHARE]

Each event is, with the given probability (0.05), one of four things: an allocation of another size, left out
(an allocation with its free; a free alone, so that its memory is live to the end), behind one that was not
there, which is freed some events later, or in the place of the next one.
"""
import csv
import random
import sys


def read(path):
    with open(path, newline="") as file:
        return [(row["op"], int(row["id"]), int(row["bytes"]), int(row["stream"])) for row in csv.DictReader(file)]


def perturb(events, seed, share):
    rng = random.Random(seed)
    sizes = [bytes_ for op, _, bytes_, _ in events if op == "a"]
    next_id = max(identity for _, identity, _, _ in events) + 1
    events = list(events)
    out, dropped, resized, due = [], set(), {}, []
    for at in range(len(events)):
        while due and due[0][0] <= at:
            out.append(due.pop(0)[1])
        op, identity, bytes_, stream = events[at]
        what = rng.choice(("size", "drop", "add", "swap")) if rng.random() < share else None
        if what == "swap" and at + 1 < len(events) and events[at + 1][1] != identity:
            events[at], events[at + 1] = events[at + 1], events[at]
            op, identity, bytes_, stream = events[at]
        elif what == "add":
            size = rng.choice(sizes)
            out.append(("a", next_id, size, stream))
            due.append((at + rng.randint(1, 200), ("f", next_id, size, stream)))
            due.sort()
            next_id += 1
        elif what == "drop" and op == "f":
            continue
        elif what == "drop":
            dropped.add(identity)
        elif what == "size" and op == "a":
            resized[identity] = max(1, int(bytes_ * rng.uniform(0.5, 1.5)))
        if identity not in dropped:
            out.append((op, identity, resized.get(identity, bytes_), stream))
    return out + [event for _, event in due]


def main():
    share = float(sys.argv[3]) if len(sys.argv) > 3 else 0.05
    print("op,id,bytes,stream,time_us")
    for time, event in enumerate(perturb(read(sys.argv[1]), int(sys.argv[2]), share)):
        print(*event, time, sep=",")


main()
