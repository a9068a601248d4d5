#!/usr/bin/env python3
"""Runs tests/soak/soak.c with every feature on and holds its figures against each other and against the device's own.

usage: soak.py [--seconds N] [--every N] [--build DIR] [--folder DIR]

The program runs in a group, with a limit, tenants, a trace, stacks, a plan of an earlier run and a report, beside a
second member that is killed and started again. From outside it is paused and resumed, trimmed, limited, and watched.
Every N seconds all is held: the requested bytes must be what the program itself counts, the reserved bytes what the
simulated device's NVML shows as used, but for the rest of its pages where memory is the driver's own. Memory of the process, files, threads and the library's host memory are noted;
the last third's mean may be above the first third's only by what noise explains. Prints a line a check, then the
verdicts; exit status 1 if one does not hold.
"""
import argparse
import atexit
import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATIENCE = 120
PAGE_BYTES = 2 << 20
OWN_PAGES = 8  # pages at most that hold memory taken beside captures, which is the driver's own
# What may be between the means of the first and the last third of the checks and is no leak. Private memory, in an
# hour: 1 MiB of records of contexts that ended, one in ten seconds and 4 KiB each; tables that fill up, 1.5 MiB of call
# stacks and 1 MiB of the pagemap; the simulated driver's own heap. Mappings: those of the simulated device's pages, which
# come and go with what is live.
NOISE = {"rss_kib": 4096, "files": 0.5, "threads": 0.5, "metadata": 64 << 10, "maps": 24}
THIRD_MIN = 3  # checks
# A first time makes threads and memory that stay: a pause has a stream of its own.
WARMING = ("pause", "resume", "limit", "trim")
SETTINGS = {
    "SIMCUDA_MEMORY": "4GiB", "GPUCACHE_LIMIT": "1GiB", "GPUCACHE_GROUP": "soak", "GPUCACHE_GROUP_LIMIT": "1400MiB",
    "GPUCACHE_TENANT": "main", "GPUCACHE_TENANTS": "ways=libtenant.so:96MiB,rest=*:900MiB", "GPUCACHE_STACKS": "all",
    "GPUCACHE_WAIT": "100", "GPUCACHE_TRIM": "50%", "GPUCACHE_LOG": "warn"}


class Memory(ctypes.Structure):
    """nvmlMemory_t."""
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Device:
    """The bytes that the simulated device itself counts as used, of all processes."""

    def __init__(self, build, shared):
        os.environ.update(SIMCUDA_SHARED=shared, SIMCUDA_MEMORY=SETTINGS["SIMCUDA_MEMORY"])
        self.driver = ctypes.CDLL(os.path.join(build, "simcuda/libcuda.so.1"), ctypes.RTLD_GLOBAL)
        self.nvml = ctypes.CDLL(os.path.join(build, "simcuda/libnvidia-ml.so.1"))
        self.handle = ctypes.c_void_p()
        assert self.nvml.nvmlInit_v2() == 0
        assert self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle)) == 0

    def used(self):
        """Bytes."""
        memory = Memory()
        assert self.nvml.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(memory)) == 0
        return memory.used


def forget_device(shared):
    """What the simulated device leaves for those who come to it later."""
    with contextlib.suppress(OSError):
        os.unlink(f"/dev/shm/simcuda-{os.getuid()}-{shared}")


class Soak:
    """One run."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.tests = os.path.join(options.build, "tests")
        self.program = os.path.join(self.tests, "soak/soak")
        self.objects = [os.path.join(self.tests, "preload", name) for name in ("libtenant.so", "libplugin.so")]
        self.shared = f"soak-{os.getpid()}"
        atexit.register(forget_device, self.shared)
        self.counts, self.refusals, self.rows, self.faults = {}, {}, [], []
        self.neighbour = None

    def environment(self, **settings):
        """Of a program under the library."""
        return {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": os.path.join(self.options.build, "simcuda"),
                "LD_PRELOAD": os.path.join(self.options.build, "libgpucache.so"), "SIMCUDA_SHARED": self.shared,
                "GPUCACHE_LEDGER": os.path.join(self.folder, "ledger"), **SETTINGS, **settings}

    def start(self, *arguments, **settings):
        """The program; it prints errors on our standard error."""
        return subprocess.Popen([self.program, *arguments], env=self.environment(**settings), stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)

    def tool(self, *arguments):
        """The tool, as a user calls it. Counts how often it ended in which way."""
        done = subprocess.run([os.path.join(self.options.build, "gpucache"), *arguments], capture_output=True, text=True,
                              env=self.environment(LD_PRELOAD=""), timeout=PATIENCE, check=False)
        kind = f"{arguments[0]} {'done' if done.returncode == 0 else 'refused'}"
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if done.returncode != 0:
            self.refusals[kind] = done.stderr.strip()
        return done

    def fault(self, text):
        """Something that does not hold."""
        self.faults.append(text)
        print(f"FAULT {text}", flush=True)

    def make_plan(self):
        """Of a trace of the program's first second."""
        trace, plan = (os.path.join(self.folder, name) for name in ("first.trace", "run.plan"))
        process = self.start(*self.objects, GPUCACHE_TRACE=trace, GPUCACHE_REPORT="none")
        time.sleep(1)
        process.communicate(timeout=PATIENCE)
        done = self.tool("plan", trace, "--output", plan)
        if done.returncode != 0:
            self.fault(f"no plan: {done.stderr}")
        return plan

    def kill_neighbour(self):
        """SIGKILL, wherever it is."""
        if self.neighbour is not None:
            self.neighbour.kill()
            self.neighbour.communicate()
            self.neighbour = None

    def steer(self, process, turn):
        """What comes from outside between two checks."""
        pid = str(process.pid)
        if turn % 4 == 0:
            paused = self.tool("pause", pid, "--timeout", "20")
            if paused.returncode == 0:
                time.sleep(0.2)
                if self.tool("resume", pid, "--timeout", "60").returncode != 0:
                    self.fault("it does not resume")
        elif turn % 4 == 1:
            self.tool("limit", pid, "700MiB" if turn % 8 == 1 else "1GiB", "--timeout", "20")
        elif turn % 4 == 2:
            self.tool("trim", "soak", "--timeout", "20")
        shown = json.loads(self.tool("top", "--once", "--json").stdout)
        if not any(row["pid"] == process.pid for row in shown["processes"]):
            self.fault("top does not show it")
        if turn % 3 == 0:
            self.kill_neighbour()
            self.neighbour = self.start("light", GPUCACHE_TENANT="light", GPUCACHE_REPORT="none")

    def check(self, process, device, seconds):
        """All held: the figures of the library, the device and the kernel side by side."""
        self.kill_neighbour()
        process.stdin.write("check\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self.fault("the program has ended")
            return False
        row = json.loads(line)
        row.update(seconds=round(seconds), used=device.used(), files=len(os.listdir(f"/proc/{process.pid}/fd")))
        with open(f"/proc/{process.pid}/status", encoding="utf-8") as stream:
            status = dict(text.split(":", 1) for text in stream if ":" in text)
        with open(f"/proc/{process.pid}/maps", encoding="utf-8") as stream:
            row["maps"] = len(stream.readlines())
        row.update(rss_kib=int(status["RssAnon"].split()[0]), threads=int(status["Threads"]))
        process.stdin.write("go\n")
        process.stdin.flush()
        row["is_warm"] = all(f"{kind} done" in self.counts for kind in WARMING)
        self.rows.append(row)
        print(" ".join(f"{key}={row[key]}" for key in (
            "seconds", "rss_kib", "maps", "files", "threads", "metadata", "requested", "reserved", "used", "allocs", "verified")),
            flush=True)
        for left, right in (("requested", "live"), ("corrupt", None), ("pending", None)):
            if row[left] != (row[right] if right else 0):
                self.fault(f"at {row['seconds']} s {left}: {row[left]}, but {right or 'wanted'}: {row[right] if right else 0}")
        if not 0 <= row["used"] - row["reserved"] < OWN_PAGES * PAGE_BYTES:
            self.fault(f"at {row['seconds']} s reserved: {row['reserved']}, but used: {row['used']}")
        return True

    def run(self):
        """From the first second to the report."""
        plan, report = self.make_plan(), os.path.join(self.folder, "report.json")
        device = Device(self.options.build, self.shared)
        process = self.start(*self.objects, GPUCACHE_PLAN=plan, GPUCACHE_REPORT=report,
                             GPUCACHE_TRACE=os.path.join(self.folder, "trace"))
        begin = last = time.monotonic()
        turn = 0
        while time.monotonic() - begin < self.options.seconds:
            time.sleep(min(2.0, self.options.every / 4))
            if process.poll() is not None:
                self.fault("it has ended")
                break
            self.steer(process, turn)
            turn += 1
            if time.monotonic() - last >= self.options.every:
                last = time.monotonic()
                if not self.check(process, device, last - begin):
                    break
        self.kill_neighbour()
        out, _ = process.communicate(timeout=PATIENCE)
        if process.returncode != 0 or not out:
            self.fault(f"exit status {process.returncode}")
        self.look_at_end(report, json.loads(out) if out else None, device)

    def look_at_end(self, report, last, device):
        """The report, the trace, and the device after the process."""
        if last is None:
            return
        with open(report, encoding="utf-8") as stream:
            row = json.load(stream)["devices"][0]
        for key, value in (("leak_count", row["leak_count"]), ("requested", row["requested_bytes"]["current"]),
                           ("used after its end", device.used()), ("live", last["live"])):
            if value != 0:
                self.fault(f"{key} at the end: {value}")
        if row["reserved_bytes"]["peak"] > row["limit_bytes"] and row["limit_bytes"] >= 1 << 30:
            self.fault("the peak is above the limit")
        done = self.tool("trace", os.path.join(self.folder, "trace"), "--json")
        if done.returncode != 0:
            self.fault(f"the trace: {done.stderr}")
        print("at the end:", " ".join(f"{key}={row[key]}" for key in (
            "alloc_count", "free_count", "hit_count", "oom_count", "trim_count", "fence_count", "invalid_free_count")))
        print("steps:", json.dumps(last["steps"]), "from outside:", json.dumps(self.counts, sort_keys=True))
        for kind, text in self.refusals.items():
            print(f"the last {kind}: {text}")
        print("trace bytes:", os.path.getsize(os.path.join(self.folder, "trace")))

    def look_for_drift(self):
        """First third against last third, once everything has been done before."""
        warm = [row for row in self.rows if row["is_warm"]]
        third = len(warm) // 3
        print(f"grown or not: {len(warm)} checks" + ("" if third >= THIRD_MIN else " are too few to decide"))
        if third < THIRD_MIN:
            return
        for key, noise in NOISE.items():
            means = [sum(row[key] for row in rows) / third for rows in (warm[:third], warm[-third:])]
            print(f"{key}: mean of the first third {means[0]:.1f}, of the last {means[1]:.1f}")
            if means[1] - means[0] > noise:
                self.fault(f"{key} grows: {means[0]:.1f} to {means[1]:.1f}")


def main():
    """Reads the arguments, soaks, reports."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--every", type=float, default=0)
    parser.add_argument("--build", default=os.environ.get("BUILD_DIR", os.path.join(ROOT, "build")))
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    options.every = options.every or max(1.5, options.seconds / 60)
    with tempfile.TemporaryDirectory(prefix="gpucache-soak.") as folder:
        soak = Soak(options, folder)
        soak.run()
        soak.look_for_drift()
    if not soak.rows:
        soak.fault("nothing was checked")
    print(f"{len(soak.rows)} checks, {len(soak.faults)} faults")
    return 1 if soak.faults else 0


if __name__ == "__main__":
    sys.exit(main())
