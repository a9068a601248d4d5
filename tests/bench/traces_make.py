#!/usr/bin/env python3
"""Traces of made programs, for `gpucache replay`: the same for the same KIND and SEED.

usage: traces_make.py KIND [SEED] > trace.csv

one_request   a single request of 120 GiB
model_server  the start of a model server: 320 weights, a profiling run, one cache for most of the device, small work
fine_tune     training with sequences of another length in each of 60 steps
torture       sizes from 2 to 512 MiB, as likely by their logarithm, in an amount that swings between 0.4 and 1 of 60 GiB
random_server sizes from 64 KiB to 1 GiB that live for long or short, at most 70 GiB
"""
import heapq
import math
import random
import sys

MIB = 1 << 20
GIB = 1 << 30


class Trace:
    """Allocations and frees, as they come."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rows = []
        self.live = {}  # id -> bytes
        self.live_bytes = 0
        self.count = 0

    def allocate(self, size):
        self.count += 1
        self.live[self.count] = size
        self.live_bytes += size
        self.rows.append(("a", self.count, size))
        return self.count

    def free(self, number):
        size = self.live.pop(number)
        self.live_bytes -= size
        self.rows.append(("f", number, size))

    def size_between(self, least, most):
        """Each power of two is as likely as the others."""
        return int(math.exp(self.random.uniform(math.log(least), math.log(most))))

    def one_of(self, numbers):
        """Takes one out of a list."""
        at = self.random.randrange(len(numbers))
        numbers[at], numbers[-1] = numbers[-1], numbers[at]
        return numbers.pop()

    def write(self, stream):
        stream.write("op,id,bytes,stream,time_us\n")
        stream.writelines(f"{op},{number},{size},0,{time}\n" for time, (op, number, size) in enumerate(self.rows))


def one_request(trace):
    trace.allocate(120 * GIB)


def model_server(trace):
    for _ in range(160):
        trace.allocate(trace.size_between(20 * MIB, 500 * MIB) // 65536 * 65536)
        trace.allocate(8192)  # its scales
    for _ in range(3 * 40):  # the profiling run: three passes over 40 layers
        layer = [trace.allocate(trace.random.choice((37 * MIB + MIB // 2, 64 * MIB, 128 * MIB, 256 * MIB, 300 * MIB, 512 * MIB)))
                 for _ in range(4)]
        for number in layer:
            trace.free(number)
    trace.allocate(125 * GIB - trace.live_bytes)  # keys and values
    work = []
    for _ in range(2000):
        if len(work) > 6:
            trace.free(trace.one_of(work))
        work.append(trace.allocate(trace.size_between(MIB, 400 * MIB)))


def fine_tune(trace):
    hidden, inner, words, layers = 4096, 11008, 32000, 32
    for _ in range(layers):
        trace.allocate(4 * hidden * hidden * 2)
        trace.allocate(3 * hidden * inner * 2)
    for _ in range(2 * layers):  # the optimizer's
        trace.allocate(64 * MIB)
    for _ in range(60):
        tokens = 2 * trace.random.randrange(128, 2049)
        kept = []
        for _ in range(layers):
            kept.append([trace.allocate(size) for size in [tokens * hidden * 2] * 4 + [tokens * inner * 2] * 2 + [layers * tokens * 4]])
            trace.free(trace.allocate(3 * tokens * hidden * 2))
        logits, losses = trace.allocate(tokens * words * 4), trace.allocate(tokens * words * 4)
        trace.free(logits)
        for layer in reversed(kept):
            gradients = [trace.allocate(tokens * inner * 2), trace.allocate(tokens * hidden * 2)]
            for number in layer[::-1] + gradients:
                trace.free(number)
        trace.free(losses)


def torture(trace):
    live = []
    for step in range(12000):
        size = trace.size_between(2 * MIB, 512 * MIB)
        while trace.live_bytes + size > 60 * GIB * (0.7 + 0.3 * math.sin(step / 700)):
            trace.free(trace.one_of(live))
        live.append(trace.allocate(size))


def random_server(trace):
    ends = []  # (step, id)
    for step in range(15000):
        while ends and ends[0][0] <= step:
            trace.free(heapq.heappop(ends)[1])
        size = trace.size_between(MIB // 16, GIB)
        mean = 3000 if trace.random.random() < 0.15 else 150
        if trace.live_bytes + size <= 70 * GIB:
            heapq.heappush(ends, (step + 1 + int(trace.random.expovariate(1 / mean)), trace.allocate(size)))


KINDS = {kind.__name__: kind for kind in (one_request, model_server, fine_tune, torture, random_server)}


def write(kind, path, seed=1):
    """Writes the trace of a kind into a file."""
    trace = Trace(seed)
    KINDS[kind](trace)
    with open(path, "w", encoding="ascii") as stream:
        trace.write(stream)


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in KINDS:
        sys.exit(__doc__)
    trace = Trace(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    KINDS[sys.argv[1]](trace)
    trace.write(sys.stdout)


if __name__ == "__main__":
    main()
