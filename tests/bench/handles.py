#!/usr/bin/env python3
"""Physical handles and driver calls of traces in mapped memory, beside plain cudaMalloc and cudaFree, by `gpucache replay`.

usage: tests/bench/handles.py [--build DIR] [--limits none,1.00,1.01,1.02,1.05] [--json] [NAME...]

Traces: the recorded ones in ../shared/data/traces, which are skipped with a line where they are not, and those of
traces_make.py. NAMEs choose some. A limit is a multiple of the most bytes that are live at once, each request rounded up to
512 bytes; so is `reserved/live`. The device has 141 GiB, and each trace runs four times. Plain memory has the limit as the
size of its device. Times are modelled (tools/replay/replay_device.h); counts do not depend on the machine.
"""
import argparse
import glob
import json
import lzma
import os
import subprocess
import sys
import tempfile

import traces_make

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RECORDED = os.path.normpath(os.path.join(ROOT, "..", "shared", "data", "traces"))
GIB = 1 << 30
MEMORY = 141 * GIB
PASSES = 4
DOES_NOT_FIT = 3  # exit status of the replay: a request was refused
HEAD = ("trace", "live, GiB", "limit", "reserved/live", "handles a GiB", "calls in pass 1, 2, 3, 4", "ms in pass 1, 4", "refused in pass 1, 2, 3, 4",
        "plain: reserved/live", "handles a GiB", "calls", "ms", "refused")


def traces(folder, names=()):
    """Name -> path of the recorded traces and of the made ones, which are written into the folder."""
    found = {}
    for path in sorted(glob.glob(os.path.join(RECORDED, "*.csv")) + glob.glob(os.path.join(RECORDED, "*.csv.xz"))):
        name = os.path.basename(path).split(".", maxsplit=1)[0]
        if names and name not in names:
            continue
        found[name] = path
        if path.endswith(".xz"):
            found[name] = os.path.join(folder, name + ".csv")
            with lzma.open(path) as packed, open(found[name], "wb") as stream:
                stream.write(packed.read())
    if not found and (not names or set(names) - set(traces_make.KINDS)):
        print(f"# no recorded traces in {RECORDED}: skipped", file=sys.stderr)
    for kind in traces_make.KINDS:
        if not names or kind in names:
            found[kind] = os.path.join(folder, kind + ".csv")
            traces_make.write(kind, found[kind])
    return found


def peak_of(path):
    """The most bytes live at once, each request rounded up to 512 bytes."""
    live, now, peak = {}, 0, 0
    with open(path, encoding="ascii") as stream:
        next(stream)
        for line in stream:
            op, number, size = line.split(",")[:3]
            if op == "a":
                live[number] = (int(size) + 511) // 512 * 512
                now += live[number]
                peak = max(peak, now)
            else:
                now -= live.pop(number)
    return peak


def replay(build, path, *options):
    """The record of a replay."""
    done = subprocess.run([os.path.join(build, "gpucache"), "replay", path, "--json", *options], capture_output=True, text=True,
                          check=False)
    if done.returncode not in (0, DOES_NOT_FIT):
        sys.exit(f"gpucache replay {path}: {done.stderr}")
    return json.loads(done.stdout)


def figures_of(record, peak):
    """A replay's figures."""
    return {"ratio": record["peak_reserved_bytes"] / peak, "handles_per_gib": record["peak_handle_count"] * GIB / peak,
            "calls": [one["driver_calls"] for one in record["passes"]], "ms": [one["driver_ms"] for one in record["passes"]],
            "refused": [one["oom_count"] for one in record["passes"]], "ns": [one["ns_per_event"] for one in record["passes"]]}


def measure(build, path, limit):
    """One trace under a multiple of its peak, None for no limit: the cache's figures and those of plain memory."""
    peak = peak_of(path)
    most = str(int(peak * limit) if limit else MEMORY)
    cached = replay(build, path, "--policy", "cache", "--passes", str(PASSES), "--memory", str(MEMORY), *(["--limit", most] if limit else []))
    plain = replay(build, path, "--policy", "driver", "--passes", "2", "--memory", most)
    return {"peak_live_bytes": peak, "limit": limit, "cache": figures_of(cached, peak), "plain": figures_of(plain, peak)}


def row_of(name, figures):
    cache, plain = figures["cache"], figures["plain"]
    return (name, f"{figures['peak_live_bytes'] / GIB:.1f}", f"{figures['limit']:.2f}" if figures["limit"] else "none", f"{cache['ratio']:.4f}",
            f"{cache['handles_per_gib']:.1f}", ", ".join(map(str, cache["calls"])), f"{cache['ms'][0]:.0f}, {cache['ms'][-1]:.0f}",
            ", ".join(map(str, cache["refused"])), f"{plain['ratio']:.4f}", f"{plain['handles_per_gib']:.1f}", str(plain["calls"][0]),
            f"{plain['ms'][0]:.0f}", str(plain["refused"][0]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--limits", default="none,1.00,1.01,1.02,1.05")
    parser.add_argument("--json", action="store_true", help="one line of JSON a row instead of a table")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    limits = [None if text == "none" else float(text) for text in options.limits.split(",")]
    with tempfile.TemporaryDirectory(prefix="gpucache-handles.") as folder:
        found = traces(folder, options.names)
        if set(options.names) - set(found):
            parser.error(f"no such trace: {' '.join(sorted(set(options.names) - set(found)))}; there are: {' '.join(traces(folder))}")
        if not options.json:
            print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
        for name, path in found.items():
            for limit in limits:
                figures = measure(options.build, path, limit)
                print(json.dumps({"trace": name, **figures}) if options.json else "| " + " | ".join(row_of(name, figures)) + " |", flush=True)


if __name__ == "__main__":
    main()
