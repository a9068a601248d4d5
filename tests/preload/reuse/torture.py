#!/usr/bin/env python3
"""Random programs (progs/torture.c) in random settings, on all processors, until the time is over.

usage: torture.py [--seconds N] [--seed N] [--jobs N] [--only ASPECT,...]
       [--without ASPECT,...] [--plain] [NAME=VALUE ...]

Every program is chosen by one number: what it may contain, and under which settings of library and
simulated device it runs. NAME=VALUE fixes a setting. One in ten runs without the library, which
checks the programs and the simulated device; --plain runs all so. A failure is shown with the
command that repeats it. The last line has the sums; exit status 1 if anything failed.

Environment: BUILD_DIR; LIB, the library.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build")).resolve()
PROGRAM = BUILD / "tests/preload/torture"
LIBRARY = os.environ.get("LIB", str(BUILD / "libgpucache.so"))
PATIENCE = 75  # seconds for one step: a request that is short waits for up to 30
CONTEXT_MIB = 64  # what a context takes of the simulated device
WORDS = ("programs", "steps", "wrong", "errors", "hangs", "crashes", "leaks")


def aspects():
    environment = dict(os.environ, LD_LIBRARY_PATH=str(BUILD / "simcuda"))
    listed = subprocess.run([PROGRAM, "--list"], env=environment, capture_output=True, text=True,
                            check=True)
    return [line.split()[0] for line in listed.stdout.splitlines()]


class Program:
    """One program and its settings, by its number."""

    def __init__(self, number, options, names):
        chance = random.Random(number)
        likelihood = chance.choice([0.1, 0.2, 0.35, 0.6, 1.0])
        drawn = [name for name in names
                 if chance.random() < likelihood and name not in options.without.split(",")]
        self.number = number
        self.aspects = options.only.split(",") if options.only else drawn or ["none"]
        self.threads = chance.choice([1, 1, 1, 2, 3, 4])
        self.steps = chance.choice([300, 600, 1200])
        self.settings = {
            "SIMCUDA_DEVICES": str(chance.choice([1, 2])),
            "SIMCUDA_WORK_US": str(chance.choice([0, 20, 100, 300, 1000])),
            "SIMCUDA_DRIVER_VERSION": str(chance.choice([13000, 13000, 13000, 12020, 11080])),
            "SIMCUDA_REUSE_CONTEXTS": str(chance.choice([0, 1])),
        }
        room = chance.choice([0, 0, 16, 32, 64, 128, 256])
        backend = chance.choice(["auto", "vmm", "driver", "whole"])
        self.is_plain = chance.random() < 0.1 or options.plain
        if not self.is_plain:
            self.settings["GPUCACHE_BACKEND"] = backend
            self.settings["GPUCACHE_MODE"] = chance.choice(["cache"] * 6 + ["track"])
            self.settings["GPUCACHE_REUSE"] = chance.choice(["fence"] * 6 + ["sync"])
            if room:
                self.settings["GPUCACHE_LIMIT"] = f"{5 * CONTEXT_MIB + room}MiB"
        if os.environ.get("SIMCUDA_PEERS") == "none" and self.settings["SIMCUDA_DEVICES"] == "2" and backend == "vmm":
            self.settings["SIMCUDA_DEVICES"] = "1"  # beside a device that is no peer, copies of mapped memory fail
        self.settings.update(options.settings)
        if self.settings.get("GPUCACHE_BACKEND", "whole") != "whole":  # blocks in pieces have none
            self.aspects = [name for name in self.aspects if name != "handles"] or ["none"]

    def arguments(self):
        return [str(PROGRAM), str(self.number), str(self.steps), str(self.threads),
                ",".join(self.aspects)]

    def environment(self, folder):
        added = dict(self.settings, LD_LIBRARY_PATH=str(BUILD / "simcuda"))
        if not self.is_plain:
            added.update(LD_PRELOAD=LIBRARY, GPUCACHE_REPORT=f"{folder}/report.json",
                         GPUCACHE_LEDGER=f"{folder}/ledger")
        return added

    def has_exact_figures(self):
        """Of idle blocks that were allocated one by one, the device counts whole pages; and a driver that takes
        memory when it first needs it keeps some for its context."""
        if os.environ.get("SIMCUDA_LAZY", "none") != "none":
            return False
        return (self.is_plain or self.settings["GPUCACHE_MODE"] == "track"
                or self.settings["GPUCACHE_BACKEND"] == "vmm")

    def command(self):
        shown = dict(self.environment("/tmp/torture"))
        return " ".join([f"{name}={value}" for name, value in shown.items()]
                        + [shlex.quote(word) for word in self.arguments()])


def kept(folder):
    """The leftovers in the library's accounts, in words; "" is right."""
    try:
        report = json.loads((pathlib.Path(folder) / "report.json").read_text())
    except (OSError, ValueError) as problem:
        return f"no report: {problem}"
    for index, device in enumerate(report["devices"]):
        for name in ("requested_bytes", "allocated_bytes"):
            if device[name]["current"] != 0:
                return f"device {index}: {name} {device[name]['current']} at the end"
        if device["leak_count"] != 0:
            return f"device {index}: {device['leak_count']} leaks"
        direct = {kind: count for kind, count in device["direct_bytes"].items() if count}
        if index == 0 and direct.get("context") == CONTEXT_MIB << 20:
            del direct["context"]  # the primary one, which the program keeps
        if direct:
            return f"device {index}: direct memory {direct} at the end"
    return ""


def evaluate(program, result, folder):
    """(word for the sum, the text); ("", "") is right."""
    if result.returncode == 3 or result.returncode == 124:
        return "hangs", result.stderr
    if result.returncode < 0 or result.returncode > 100:
        return "crashes", f"exit status {result.returncode}\n{result.stderr}"
    if "wrong bytes" in result.stderr:
        return "wrong", result.stderr
    if result.returncode != 0:
        return "errors", result.stderr
    used = re.search(r"used (\d+) (\d+)", result.stdout)
    if used is None or (program.has_exact_figures() and used[1] != used[2]):
        return "leaks", f"the device's used bytes: {used and used[0]}"
    left = "" if program.is_plain else kept(folder)
    return ("leaks", left) if left else ("", "")


def run(program):
    with tempfile.TemporaryDirectory(prefix="torture.") as folder:
        environment = dict(os.environ, TORTURE_PATIENCE=str(PATIENCE),
                           **program.environment(folder))
        try:
            result = subprocess.run(program.arguments(), env=environment, capture_output=True,
                                    text=True, errors="replace", timeout=20 * PATIENCE)
        except subprocess.TimeoutExpired:
            return "hangs", "the watchdog did not end it"
        return evaluate(program, result, folder)


def parse():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--programs", type=int, default=10**9)
    parser.add_argument("--only", default="")
    parser.add_argument("--without", default="")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("settings", nargs="*")
    options = parser.parse_args()
    options.settings = dict(setting.split("=", 1) for setting in options.settings)
    if options.seed is None:
        options.seed = int(time.time())
    return options


def main():
    options = parse()
    names = aspects()
    sums = dict.fromkeys(WORDS, 0)
    lock = threading.Lock()
    end = time.monotonic() + options.seconds
    numbers = iter(range(options.seed * 100000, options.seed * 100000 + options.programs))

    def work():
        while time.monotonic() < end:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            program = Program(number, options, names)
            word, output = run(program)
            with lock:
                sums["programs"] += 1
                sums["steps"] += program.steps * program.threads
                if word:
                    sums[word] += 1
                    print(f"{word}: {program.command()}")
                    print("".join(f"    {line}\n" for line in output.splitlines()[:6]), end="",
                          flush=True)

    threads = [threading.Thread(target=work) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(" ".join(f"{word} {sums[word]}" for word in WORDS), f"seed {options.seed}", flush=True)
    return int(any(sums[word] for word in WORDS[2:]) or sums["programs"] == 0)


if __name__ == "__main__":
    sys.exit(main())
