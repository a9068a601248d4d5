#!/usr/bin/env python3
"""Plans of placement problems beside online best fit, which a plan is never behind.

usage: problems.py TOOL [FILE.csv | KIND:COUNT]… [--table] [--deadline SEC] [--minimalloc PROGRAM]

Without --table: problems of every kind and many sizes, each with hardly any time; small ones against a search of all orders.
With it: a row for each problem: best fit, the plan, and minimalloc (google/minimalloc, built apart) where it is given, to
10,000 buffers.
"""
import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "bench"), os.path.dirname(os.path.abspath(__file__))]

import best_fit  # noqa: E402
import placement_make  # noqa: E402

KINDS = ("random", "serve", "classes", "ladder", "same", "pinwheel", "nested", "staircase", "guillotine")
MINIMALLOC_MOST = MANY = 10000
BYTES_MOST = 400  # of memory for each buffer
TABLE_KINDS = ("serve", "classes", "same", "random", "ladder", "pinwheel")
LARGE = ((10000, 3), (100000, 3), (200000, 5))  # buffers, seconds
OWN_COUNT = 1000  # buffers that fill a pipe, and take next to no memory


def write(rows, path):
    with open(path, "w", encoding="utf-8") as file:
        file.write("id,lower,upper,size\n")
        file.writelines(f"{i},{lower},{upper},{size}\n" for i, (lower, upper, size) in enumerate(rows))


def plan(tool, path, *options):
    """The plan, its seconds of CPU and of the clock, and its most memory, known if it fills a pipe: then it waits there."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    parts, memory = [], 0
    with subprocess.Popen([tool, "plan", path, "--json", *options], stdout=subprocess.PIPE) as process:
        while part := process.stdout.read1(1 << 20):
            parts.append(part)
            with open(f"/proc/{process.pid}/status", encoding="utf-8") as status:
                memory = next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM")), memory)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(b"".join(parts)), cpu, time.monotonic() - begin, memory


def own_memory(tool, folder):
    """Of the program, without the buffers."""
    path = os.path.join(folder, "own.csv")
    write(placement_make.make("same", OWN_COUNT, 7), path)
    return plan(tool, path)[3]


def least_peak(rows):
    """The least peak of all placements in which each buffer rests on another: an exhaustive search."""
    best = sum(size for _, _, size in rows)

    def descend(placed, left, peak):
        nonlocal best
        if peak >= best:
            return
        if not left:
            best = peak
        for i in left:
            lower, upper, size = rows[i]
            beside = [(offset, offset + rows[j][2]) for j, offset in placed if rows[j][0] < upper and lower < rows[j][1]]
            offset = max((end for _, end in beside), default=0)
            descend(placed + [(i, offset)], left - {i}, max(peak, offset + size))

    descend([], frozenset(range(len(rows))), 0)
    return best


def check_small(tool, folder, count, most=7):
    rng, wrong = random.Random(5), 0
    path = os.path.join(folder, "small.csv")
    for _ in range(count):
        rows = []
        for _ in range(rng.randrange(1, most + 1)):
            lower = rng.randrange(8)
            rows.append((lower, lower + rng.randrange(1, 7), rng.randrange(1, 30)))
        write(rows, path)
        found, least = plan(tool, path)[0], least_peak(rows)
        if found["peak_bytes"] != least or not found["optimal"]:
            print(f"{rows}: {found['peak_bytes']}, not {least}")
            wrong += 1
    return wrong


def check_never_behind(tool, folder):
    rng, wrong = random.Random(6), 0
    path = os.path.join(folder, "any.csv")
    for kind in KINDS:
        for count in (12, 200, 3000, 20000):
            rows = placement_make.make(kind, count, rng.randrange(1 << 30))
            write(rows, path)
            plain = best_fit.best_fit(rows)
            for options in (("--nodes", "1"), ("--deadline", "0"), ("--deadline", "1")):
                found = plan(tool, path, *options)[0]
                if found["peak_bytes"] > plain or found["lower_bound_bytes"] < best_fit.bound(rows):
                    print(f"{kind} of {count} {options}: {found['peak_bytes']}, best fit {plain}")
                    wrong += 1
    return wrong


def check_large(tool, folder):
    """Memory, and the deadline: of processor time, for the machine has other work; with a tenth of leeway, and a second."""
    wrong, own = 0, own_memory(tool, folder)
    path = os.path.join(folder, "large.csv")
    for count, deadline in LARGE:
        for kind in TABLE_KINDS:
            rows = placement_make.make(kind, count, 7)
            write(rows, path)
            _, seconds, _, memory = plan(tool, path, "--deadline", str(deadline))
            each = (memory - own) / (len(rows) - OWN_COUNT)
            print(f"{kind} of {len(rows)}: {each:.0f} bytes each, {seconds:.1f} of {deadline} s")
            wrong += each > BYTES_MOST or seconds > 1.1 * deadline + 1
    return wrong


def minimalloc(program, path, rows, seconds):
    """Its least capacity; it has no time limit of its own for the minimum."""
    begin = time.monotonic()
    out = path + ".out"
    command = [program, f"--input={path}", f"--output={out}", "--capacity=" + str(sum(row[2] for row in rows)),
               "--minimize_capacity", f"--timeout={seconds}s"]
    try:
        subprocess.run(command, capture_output=True, check=True, timeout=2 * seconds)
        with open(out, encoding="utf-8") as file:
            peak = max(int(line.split(",")[-1]) + int(line.split(",")[-2]) for line in list(file)[1:])
    except (subprocess.SubprocessError, OSError, ValueError):
        return None, time.monotonic() - begin
    return peak, time.monotonic() - begin


def table(arguments, folder):
    own = own_memory(arguments.tool, folder)
    print("| problem | buffers | best fit | minimalloc | plan | s of CPU | bytes each |\n|---|---|---|---|---|---|---|")
    for name in arguments.problems:
        path = name
        if not os.path.exists(name):
            kind, count = name.split(":")
            path = os.path.join(folder, f"{kind}.{count}.csv")
            write(placement_make.make(kind, int(count), 7), path)
        rows = best_fit.read(path)
        found, cpu, _, bytes_ = plan(arguments.tool, path, "--deadline", str(arguments.deadline))
        low = found["lower_bound_bytes"]
        each = f"{(bytes_ - own) / len(rows):.0f}" if len(rows) >= MANY else "–"
        other = "–"
        if arguments.minimalloc and len(rows) <= MINIMALLOC_MOST:
            peak, seconds = minimalloc(arguments.minimalloc, path, rows, arguments.deadline)
            other = f"none in {seconds:.0f} s" if peak is None else f"{peak / low:.4f}, {seconds:.1f} s"
        print(f"| {os.path.basename(name)} | {len(rows)} | {best_fit.best_fit(rows) / low:.4f} | {other} | "
              f"{found['peak_bytes'] / low:.4f} | {cpu:.1f} | {each} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("problems", nargs="*")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--deadline", type=int, default=10)
    parser.add_argument("--minimalloc")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.table:
            table(arguments, folder)
            return 0
        wrong = check_small(arguments.tool, folder, 150) + check_never_behind(arguments.tool, folder)
        return 1 if wrong + check_large(arguments.tool, folder) > 0 else 0


if __name__ == "__main__":
    sys.exit(main())
