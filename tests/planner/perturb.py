#!/usr/bin/env python3
"""A trace with a part of its events changed: usage: perturb.py TRACE.csv SEED [SHARE [KIND]]

Each event is, with the given probability (0.05), changed in one way. Without a KIND, that is one of four: an
allocation of another size, left out (an allocation with its free; a free alone, so that its memory is live to the
end), behind one that was not there, which is freed some events later, or in the place of the next one. A KIND
makes all changes of one kind, about as many events in all:

  nudge   an allocation is up to 5 % larger or smaller      size    up to 50 %
  other   an allocation has the size of another             miss    it and its free are left out
  leak    a free is left out                                add     one more, which is freed some events later
  swap    an event comes behind the next one                stream  an allocation is another stream's
"""
import csv
import random
import sys

MIXED = ("size", "drop", "add", "swap")
OF_ALLOCATIONS = ("nudge", "size", "other", "miss", "stream")
KINDS = OF_ALLOCATIONS + ("leak", "add", "swap")
OTHER_STREAM = 7


def read(path):
    with open(path, newline="") as file:
        return [(row["op"], int(row["id"]), int(row["bytes"]), int(row["stream"])) for row in csv.DictReader(file)]


def chooser(rng, share, kind, events):
    """What happens to an event, by its op; None: nothing."""
    if kind is None:
        return lambda op: rng.choice(MIXED) if rng.random() < share else None
    op_of_kind = "a" if kind in OF_ALLOCATIONS else "f" if kind == "leak" else None
    fitting = sum(op_of_kind in (None, op) for op, *_ in events)
    likely = share * len(events) / fitting
    return lambda op: kind if op_of_kind in (None, op) and rng.random() < likely else None


class Changed:
    """The new trace as it comes into being."""

    def __init__(self, events, seed, share, kind):
        self.rng = random.Random(seed)
        self.choose = chooser(self.rng, share, kind, events)
        self.sizes = [bytes_ for op, _, bytes_, _ in events if op == "a"]
        self.next_id = max(identity for _, identity, _, _ in events) + 1
        self.events = list(events)
        self.out, self.left_out, self.resized, self.moved, self.due = [], set(), {}, {}, []

    def add(self, at, stream):
        size = self.rng.choice(self.sizes)
        self.out.append(("a", self.next_id, size, stream))
        self.due.append((at + self.rng.randint(1, 200), ("f", self.next_id, size, stream)))
        self.due.sort()
        self.next_id += 1

    def change(self, what, at):
        """The event under way; False: it is not in the new trace."""
        op, identity, bytes_, stream = self.events[at]
        if what == "swap" and at + 1 < len(self.events) and self.events[at + 1][1] != identity:
            self.events[at], self.events[at + 1] = self.events[at + 1], self.events[at]
        elif what == "add":
            self.add(at, stream)
        elif what == "leak" or (what == "drop" and op == "f"):
            return False
        elif what in ("drop", "miss"):
            self.left_out.add(identity)
        elif what in ("size", "nudge") and op == "a":
            most = 0.5 if what == "size" else 0.05
            self.resized[identity] = max(1, int(bytes_ * self.rng.uniform(1 - most, 1 + most)))
        elif what == "other":
            self.resized[identity] = self.rng.choice(self.sizes)
        elif what == "stream":
            self.moved[identity] = OTHER_STREAM
        return True

    def make(self):
        for at in range(len(self.events)):
            while self.due and self.due[0][0] <= at:
                self.out.append(self.due.pop(0)[1])
            is_there = self.change(self.choose(self.events[at][0]), at)
            op, identity, bytes_, stream = self.events[at]
            if is_there and identity not in self.left_out:
                self.out.append((op, identity, self.resized.get(identity, bytes_), self.moved.get(identity, stream)))
        return self.out + [event for _, event in self.due]


def main():
    share = float(sys.argv[3]) if len(sys.argv) > 3 else 0.05
    kind = sys.argv[4] if len(sys.argv) > 4 else None
    if kind not in KINDS + (None,):
        sys.exit(f"no kind {kind}; there are {' '.join(KINDS)}")
    print("op,id,bytes,stream,time_us")
    for time, event in enumerate(Changed(read(sys.argv[1]), int(sys.argv[2]), share, kind).make()):
        print(*event, time, sep=",")


main()
