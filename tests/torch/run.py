"""The matrix: areas of PyTorch (cases.py) x its allocators x settings of the library. Prints TAP.

usage: matrix.py PYTHON STUBS PLAIN_ALLOCATOR [full|short] [AREA...]

Two processes at a time import PyTorch (zygote.py), one kind with the library preloaded and one without, and fork for
each job. A job passes if no byte was wrong, and it saw what the same job without the library saw, and wrote the same
to stderr, and the report has the counts.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD_DIR", os.path.join(ROOT, "build"))
HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.join(BUILD, "libgpucache.so")
SECONDS = 120

ALLOCATORS = {
    "native": {},
    "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "async": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
    "nocache": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    "pluggable": {},
    "own": {},
}
LIBRARIES = {"none": None, "off": {"GPUCACHE_MODE": "off"}, "track": {"GPUCACHE_MODE": "track"}}
for _backend in ("vmm", "driver"):
    for _reuse in ("fence", "sync"):
        LIBRARIES[f"cache {_backend} {_reuse}"] = {"GPUCACHE_MODE": "cache", "GPUCACHE_BACKEND": _backend,
                                                   "GPUCACHE_REUSE": _reuse}
# How long an operation of a stream takes, so that there is work left when memory is freed.
AREAS = {
    "tensors": {}, "streams": {"SIMCUDA_WORK_US": "100"}, "record_stream": {"SIMCUDA_WORK_US": "500"}, "threads": {},
    "graphs": {}, "graph_trees": {}, "training": {}, "convolution": {}, "limits": {}, "forks": {}, "nvml": {},
    "snapshots": {}, "counts": {}, "pools": {}, "devices": {"SIMCUDA_DEVICES": "2"},
}
SHORT = [("native", "cache vmm fence"), ("expandable", "cache vmm fence"), ("async", "cache vmm fence"),
         ("nocache", "cache vmm fence"), ("nocache", "cache driver fence"), ("native", "track")]


class Zygote:
    """A process with PyTorch imported, with or without the library, for allocators that share an import."""

    def __init__(self, python, stubs, preloaded, variables, folder):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("GPUCACHE_", "SIMCUDA_", "LD_"))}
        environment.update(variables)
        environment["LD_LIBRARY_PATH"] = os.path.join(BUILD, "simcuda") + ":" + stubs
        environment["TORCH_CUDNN_V8_API_DISABLED"] = "1"  # what the stand-in of cuDNN has
        environment["GPUCACHE_LEDGER"] = os.path.join(folder, "ledger")
        environment["HOME"] = environment["TORCHINDUCTOR_CACHE_DIR"] = folder
        if preloaded:
            environment["LD_PRELOAD"] = LIBRARY
        self.process = subprocess.Popen([python, os.path.join(HERE, "zygote.py")], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, job):
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def jobs_of(allocator, library, areas, folder):
    """The jobs of one allocator and one setting of the library."""
    for name in areas:
        base = os.path.join(folder, f"{allocator}-{library}-{name}".replace(" ", "-"))
        environment = dict(AREAS[name], **(LIBRARIES[library] or {}))
        if library != "none":
            environment["GPUCACHE_REPORT"] = base + ".json"
        if name == "limits":
            limited = library.startswith(("track", "cache"))
            environment["SIMCUDA_MEMORY"] = "4GiB" if limited else "1GiB"
            if limited:
                environment["GPUCACHE_LIMIT"] = "1GiB"
        yield {"area": name, "allocator": allocator, "library": library, "environment": environment, "seconds": SECONDS,
               "output": base + ".out", "errors": base + ".err", "report": environment.get("GPUCACHE_REPORT")}


def run_jobs(arguments):
    """All jobs of one zygote, with their results."""
    make, jobs = arguments
    zygote = make()
    for job in jobs:
        job["status"] = zygote.run(job)
        with open(job["errors"], encoding="utf-8") as stream:
            job["stderr"] = stream.read()
        job["result"] = {}
        if os.path.exists(job["output"]):
            with open(job["output"], encoding="utf-8") as stream:
                job["result"] = json.load(stream)
    zygote.end()
    return jobs


def plain_text(text):
    """stderr without numbers that differ from run to run."""
    return re.sub(r"\d+", "N", text)


def report_faults(job, seen):
    """Where the report does not say what the program did."""
    with open(job["report"], encoding="utf-8") as stream:
        report = json.load(stream)
    faults = [f"the report warns: {warning}" for warning in report["warnings"]]
    device = report["devices"][0]
    if device["invalid_free_count"]:
        faults.append(f"{device['invalid_free_count']} invalid frees")
    for entry, number in seen.get("counts", {}).items():
        row = device["by_api"].get(entry, {})
        if number is not None and row.get("count") != number:
            faults.append(f"{entry}: the report counts {row.get('count')}, the program {number}; {device['by_api']}")
    for entry, number in seen.get("bytes", {}).items():
        got = device["by_api"].get(entry, {}).get("current_bytes")
        if got != number:
            faults.append(f"{entry}: the report has {got} bytes, PyTorch {number}")
    return faults


def faults_of(job, baseline):
    """Everything wrong with a job, as text."""
    result = job["result"]
    if job["status"] != 0 or "error" in result or not result:
        return [f"wait status {job['status']}", result.get("error", "no result"), job["stderr"][-3000:]]
    if "skip" in result:
        return []
    faults = []
    if job is not baseline:
        for key, value in result["seen"].items():
            want = baseline["result"].get("seen", {}).get(key)
            if value != want:
                faults.append(f"{key}: {value}; without the library {want}")
        if plain_text(job["stderr"]) != plain_text(baseline["stderr"]):
            faults.append(f"stderr: {job['stderr']}; without the library: {baseline['stderr']}")
    if job["library"].startswith(("track", "cache")):
        if os.path.exists(job["report"]):
            faults += report_faults(job, result["seen"])
        else:
            faults.append("no report")
    elif job["report"] and os.path.exists(job["report"]):
        faults.append("a report in mode off")
    return faults


def main():
    python, stubs, plain_allocator, extent, *areas = sys.argv[1:]
    areas = areas or list(AREAS)
    variables = {"TORCH_PLAIN_ALLOCATOR": plain_allocator, "TORCH_OWN_ALLOCATOR": LIBRARY}
    pairs = [(a, l) for a in ALLOCATORS for l in LIBRARIES if extent == "full" or l == "none" or (a, l) in SHORT]
    if extent != "full":
        pairs = [(a, l) for a, l in pairs if any(a == allocator for allocator, _ in SHORT)]
    with tempfile.TemporaryDirectory(prefix="gpucache-torch.") as folder:
        groups = {}
        for allocator, library in pairs:
            key = (tuple(ALLOCATORS[allocator].items()), library != "none")
            groups.setdefault(key, []).extend(jobs_of(allocator, library, areas, folder))
        work = [(lambda key=key: Zygote(python, stubs, key[1], dict(variables, **dict(key[0])), folder), jobs)
                for key, jobs in groups.items()]
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            done = [job for jobs in pool.map(run_jobs, work) for job in jobs]
        found = {(job["allocator"], job["library"], job["area"]): job for job in done}
        failed = 0
        for number, (allocator, library, name) in enumerate(sorted(found, key=lambda key: (
                list(ALLOCATORS).index(key[0]), areas.index(key[2]), list(LIBRARIES).index(key[1]))), 1):
            job = found[allocator, library, name]
            faults = faults_of(job, found[allocator, "none", name])
            title = f"{allocator}, {library}: {name}"
            if faults:
                failed += 1
                print(f"not ok {number} - {title}")
                print("\n".join("# " + line for fault in faults for line in str(fault).splitlines()))
            else:
                skip = job["result"].get("skip")
                print(f"ok {number} - {title}" + (f" # SKIP {skip}" if skip else ""))
        print(f"1..{len(found)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
