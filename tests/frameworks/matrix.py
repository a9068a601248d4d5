"""The matrix: frameworks (frameworks.py) x their allocators x areas of their programs x settings of the library.

usage: matrix.py BUILD COMPILER [WORD...]     with WORDs only jobs whose names have one of them

Each job is a process. It passes if no byte was wrong, and it saw what the same job without the library saw, and wrote
the same to stderr up to numbers, and the report counts the allocations that the driver saw in the job without it.
Prints TAP and a line with the counts. A framework that cannot be had or run here is one skip, with the reason.
"""
import argparse
import concurrent.futures
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import frameworks

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS = 300
LIBRARIES = {
    "none": None, "off": {"GPUCACHE_MODE": "off"}, "track": {"GPUCACHE_MODE": "track"},
    "cache vmm": {"GPUCACHE_MODE": "cache", "GPUCACHE_BACKEND": "vmm"},
    "cache driver": {"GPUCACHE_MODE": "cache", "GPUCACHE_BACKEND": "driver"},
    "cache sync": {"GPUCACHE_MODE": "cache", "GPUCACHE_REUSE": "sync"},
}
REFUSED = re.compile(r"^gpucache: device \d+: [0-9.]+ \w+ refused: .*\n", re.MULTILINE)
CLEARED = re.compile(r"^(GPUCACHE_|SIMCUDA_|CUDA_|LD_|XLA_|JAX_|PYTHON)")
# Entry points that take memory, as the driver's journal and the report name them.
ALLOCATES = re.compile(r"cuMem(Alloc(Pitch|Async|FromPoolAsync|Managed)?|Create|HostAlloc|AllocHost|HostRegister)"
                       r"(_v2)?(_ptsz)?$")
# The runtime's, by what they call in the driver.
RUNTIME = {"cudaMalloc": "cuMemAlloc_v2", "cudaMallocAsync": "cuMemAllocAsync", "cudaMallocManaged": "cuMemAllocManaged",
           "cudaMallocFromPoolAsync": "cuMemAllocFromPoolAsync", "cudaMallocPitch": "cuMemAllocPitch_v2",
           "cudaHostAlloc": "cuMemHostAlloc", "cudaMallocHost": "cuMemHostAlloc"}


class Job:
    """One process: a framework's area with one allocator and one setting of the library."""

    def __init__(self, framework, allocator, area, library, folder):
        self.framework, self.allocator, self.area, self.library = framework, allocator, area, library
        self.name = ", ".join(part for part in (framework.name, allocator, library)) + f": {area}"
        self.base = os.path.join(folder, re.sub(r"\W+", "-", self.name))
        self.status, self.errors, self.result = None, "", {}

    def environment(self, build):
        values = {key: value for key, value in os.environ.items() if not CLEARED.match(key)}
        values.update(self.framework.environment, **self.framework.allocators[self.allocator], **self.framework.areas[self.area])
        home = self.base + ".home"
        os.makedirs(home)
        values.update(PROGRAM_RESULT=self.base + ".result", HOME=home, XDG_CACHE_HOME=home, TMPDIR=home,
                      GPUCACHE_LEDGER=os.path.join(home, "ledger"), PYTHONDONTWRITEBYTECODE="1",
                      LD_LIBRARY_PATH=":".join([os.path.join(build, "simcuda"), *self.framework.folders]))
        preloaded = list(self.framework.preloaded)
        if self.area == "limit":
            # The device is as small without the library as the limit is with it.
            values["SIMCUDA_MEMORY"] = "4GiB" if self.counts() else self.framework.limit
            if self.counts():
                values["GPUCACHE_LIMIT"] = self.framework.limit
        values["SIMCUDA_JOURNAL"] = self.base + ".journal"
        if self.library != "none":
            values.update(LIBRARIES[self.library], GPUCACHE_REPORT=self.base + ".json")
            place = {"before": 0, "behind": len(preloaded), "by the tool": None}[self.framework.place(self.allocator)]
            if place is not None:
                preloaded.insert(place, os.path.join(build, "libgpucache.so"))
        if preloaded:
            values["LD_PRELOAD"] = ":".join(preloaded)
        return values

    def counts(self):
        return self.library.startswith(("track", "cache"))

    def run(self, build):
        environment = self.environment(build)
        with open(self.base + ".err", "w+", encoding="utf-8", errors="replace") as errors:
            command = [*self.framework.command, self.area]
            if self.library != "none" and self.framework.place(self.allocator) == "by the tool":
                command = [os.path.join(build, "gpucache"), "run", "--", *command]
            with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                  stdout=errors, stderr=errors, cwd=environment["HOME"]) as process:
                try:
                    self.status = process.wait(SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
            errors.seek(0)
            self.errors = errors.read()
        if os.path.exists(self.base + ".result"):
            with open(self.base + ".result", encoding="utf-8") as stream:
                self.result = json.load(stream)
        shutil.rmtree(environment["HOME"], ignore_errors=True)
        return self

    def own_errors(self):
        """Without the library's lines about requests that are refused on purpose."""
        return REFUSED.sub("", self.errors) if self.area == "limit" else self.errors

    def taken(self):
        """From the journal: {entry point: successful calls that take memory}."""
        found = {}
        with open(self.base + ".journal", encoding="utf-8") as stream:
            for line in stream:
                fields = line.split(" ", 4)
                if len(fields) > 3 and ALLOCATES.match(fields[2]) and fields[3] in ("0", "CUDA_SUCCESS"):
                    found[fields[2]] = found.get(fields[2], 0) + 1
        return found


def plain_lines(text):
    """The lines without numbers, sorted: threads of a framework write in any order."""
    return sorted(re.sub(r"0x[0-9a-f]+| *\d+", "N", line) for line in text.splitlines())


def report_faults(job, baseline):
    """Where the report does not say what the program did."""
    if not os.path.exists(job.base + ".json"):
        return ["no report"]
    with open(job.base + ".json", encoding="utf-8") as stream:
        report = json.load(stream)
    faults = [f"the report warns: {warning}" for warning in report["warnings"]]
    counted = {}
    for device in report["devices"]:
        if device["invalid_free_count"]:
            faults.append(f"{device['invalid_free_count']} invalid frees")
        for entry, row in device["by_api"].items():
            counted[entry] = counted.get(entry, 0) + row["count"]
    for entry, number in job.result["counts"].items():
        if counted.get(entry, 0) != number:
            faults.append(f"{entry}: the report counts {counted.get(entry, 0)}, the program {number}; {counted}")
    if job.framework.is_varying(job.allocator, job.area):
        return faults
    called, seen, own = {}, baseline.taken(), job.taken()
    for entry, number in counted.items():
        entry = RUNTIME.get(entry, entry)
        called[entry] = called.get(entry, 0) + number
    for entry in job.framework.varying:
        seen[entry] = own.get(entry, 0)
        if entry == "cuMemCreate" and job.library.startswith("cache"):
            seen[entry] = min(seen[entry], called.get(entry, 0))  # the library, too, maps memory where it caches
    for entry in sorted(seen.keys() | called.keys()):
        if ALLOCATES.match(entry) and called.get(entry, 0) != seen.get(entry, 0):
            faults.append(f"{entry}: the report counts {called.get(entry, 0)}, the driver saw {seen.get(entry, 0)}")
    return faults


def faults_of(job, baseline):
    """Everything wrong with a job, as text."""
    if job.status != 0 or not job.result or "error" in job.result:
        status = "ran too long" if job.status is None else f"exit status {job.status}"
        return [status, job.result.get("error", "no result"), job.errors[-3000:]]
    if "skip" in job.result:
        return []
    faults = []
    if job is not baseline:
        for key, value in job.result["seen"].items():
            wanted = baseline.result.get("seen", {}).get(key)
            if value != wanted:
                faults.append(f"{key}: {value}; without the library {wanted}")
        if plain_lines(job.own_errors()) != plain_lines(baseline.errors):
            faults.append(f"stderr: {job.errors[-3000:]}; without the library: {baseline.errors[-3000:]}")
    if job.counts() and "seen" in baseline.result:
        faults += report_faults(job, baseline)
    elif job.library == "off" and os.path.exists(job.base + ".json"):
        faults.append("a report in mode off")
    return faults


class Tap:
    """What is printed, and the counts."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def show(self, name, faults, skip=None):
        self.failed += bool(faults)
        self.skipped += not faults and bool(skip)
        self.passed += not faults and not skip
        number = self.passed + self.failed + self.skipped
        print(f"{'not ok' if faults else 'ok'} {number} - {name}" + (f" # SKIP {skip}" if skip and not faults else ""))
        for fault in faults:
            print("\n".join("# " + line for line in str(fault).splitlines()))
        sys.stdout.flush()


def run_framework(framework, options, folder, tap):
    """All jobs of a framework, two at a time; a baseline is done before the jobs that are compared with it."""
    build, words = options.build, options.words
    jobs = [Job(framework, allocator, area, library, folder) for allocator in framework.allocators
            for area in framework.areas for library in LIBRARIES if framework.has(allocator, area, library)]
    wanted = [job for job in jobs if not words or any(word in job.name for word in words)]
    needed = {(job.allocator, job.area) for job in wanted}
    if not wanted:
        return
    try:
        with open(os.path.join(build, f"{framework.venv or framework.name}.lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            framework.prepare(build, options.compiler)
    except subprocess.CalledProcessError as error:
        tap.show(f"{framework.name} is built", [error, error.stderr])
        return
    except frameworks.Unavailable as reason:
        tap.show(framework.name, [], str(reason))
        return
    running = [job for job in jobs if job in wanted or job.library == "none" and (job.allocator, job.area) in needed]
    baselines = {}
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for job in pool.map(lambda job: job.run(build), running):
            if job.library == "none":
                baselines[job.allocator, job.area] = job
            tap.show(job.name, faults_of(job, baselines[job.allocator, job.area]), job.result.get("skip"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=os.path.abspath)
    parser.add_argument("compiler")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="gpucache-frameworks.") as folder:
        for framework in frameworks.ALL:
            run_framework(framework, options, folder, tap)
    print(f"1..{tap.passed + tap.failed + tap.skipped}")
    print(f"{tap.passed} passed, {tap.failed} failed, {tap.skipped} skipped")
    return 1 if tap.failed or not tap.passed + tap.skipped else 0


if __name__ == "__main__":
    sys.exit(main())
