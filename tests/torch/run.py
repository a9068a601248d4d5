#!/usr/bin/env python3
"""PyTorch, unmodified, on the simulated device: its areas (cases.py) x its allocators x settings of the library.

usage: run.py --build DIR [--short] [WORD...]

PyTorch is the wheel of PyPI (scripts/torch-packages.sh), its runtime the project's stand-in, its cuBLAS, cuDNN and their like
are stubs (stubs.py). Before the matrix each symbol of the runtime that PyTorch's libraries want is looked up in the stand-in.

A process with the library preloaded and one without import PyTorch for each allocator (zygote.py) and fork for each job. A job
passes if no byte was wrong, it saw what the same job without the library saw, it wrote the same to stderr, and the report has
the counts. --short runs six pairs of an allocator and a setting, and fetches nothing. WORDs choose jobs by their names.

Prints TAP, each skip with its reason, and at the end, alone on the last line, `N passed, N failed, N skipped`.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import cases
import stubs

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SECONDS = 150

ALLOCATORS = {
    "native": {},
    "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "async": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
    "nocache": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    "pluggable": {},
    "own": {},
}


def cached(backend, reuse="fence"):
    return {"GPUCACHE_MODE": "cache", "GPUCACHE_BACKEND": backend, "GPUCACHE_REUSE": reuse}


LIBRARIES = {
    "none": {}, "off": {"GPUCACHE_MODE": "off"}, "track": {"GPUCACHE_MODE": "track"},
    "cache vmm fence": cached("vmm"), "cache vmm sync": cached("vmm", "sync"), "cache driver fence": cached("driver"),
    "cache driver sync": cached("driver", "sync"), "cache whole fence": cached("whole"),
}
COUNTING = [name for name in LIBRARIES if name.startswith(("track", "cache"))]
# Each area's variables. SIMCUDA_WORK_US is how long an operation of a stream takes: there is work left when memory is freed.
AREAS = {
    "tensors": {}, "streams": {"SIMCUDA_WORK_US": "100"}, "record_stream": {"SIMCUDA_WORK_US": "500"}, "threads": {},
    "hosts": {"SIMCUDA_WORK_US": "100"}, "graphs": {}, "graph_trees": {}, "training": {}, "convolution": {}, "limits": {},
    "pool_limits": {}, "forks": {}, "ipc": {}, "nvml": {}, "snapshots": {}, "counts": {}, "refusals": {}, "pools": {},
    "devices": {"SIMCUDA_DEVICES": "2"}, "tenants": {"GPUCACHE_TENANTS": "torch=libc10_cuda.so:256MiB"},
}
LIMITED = ("limits", "pool_limits")  # to 1 GiB: by the library, and without it by the device's size
WITHOUT_BASELINE = ("tenants",)  # areas of the library's own
# The line of a refused request, at most one a minute: the areas that reach a limit have it.
REFUSED = r"device \d+: .* refused: "
SHORT = [("native", "track"), ("native", "cache vmm fence"), ("expandable", "cache vmm fence"),
         ("async", "cache vmm fence"), ("nocache", "cache vmm fence"), ("nocache", "cache driver fence")]


class Results:
    """Prints TAP; at the end the skips, the failures and the closing line, as tests/run does."""

    def __init__(self):
        self.passed, self.failures, self.skips = 0, [], []

    def add(self, name, faults, skip=None):
        faults = [line for fault in faults for line in str(fault).splitlines()]
        number = self.passed + len(self.failures) + len(self.skips) + 1
        if faults:
            self.failures.append(name)
        elif skip:
            self.skips.append(f"{name}: {skip}")
        else:
            self.passed += 1
        print(f"{'not ok' if faults else 'ok'} {number} - {name}" + (f" # SKIP {skip}" if skip and not faults else ""))
        print("".join(f"# {line}\n" for line in faults), end="", flush=True)

    def close(self):
        number = self.passed + len(self.failures) + len(self.skips)
        print(f"1..{number}")
        for title, names in (("SKIPPED", self.skips), ("FAILED", self.failures)):
            if names:
                print(f"\n{title}:\n" + "\n".join("  " + name for name in names))
        if not number:
            print("no job matches")
        print(f"\n{self.passed} passed, {len(self.failures)} failed, {len(self.skips)} skipped", flush=True)
        return 1 if self.failures or not number else 0


def environment_of(options, allocator, folder, **added):
    """The variables of a process with PyTorch and this allocator; none that keeps Python from using PyTorch's bytecode again."""
    kept = {key: value for key, value in os.environ.items()
            if not key.startswith(("GPUCACHE_", "SIMCUDA_", "CUDA_", "LD_", "PYTHON", "PYTORCH_", "TORCH"))}
    return {**kept, **ALLOCATORS[allocator], "LD_LIBRARY_PATH": f"{options.build}/simcuda:{options.stubs}", "HOME": folder,
            "TORCHINDUCTOR_CACHE_DIR": folder, "GPUCACHE_LEDGER": os.path.join(folder, "ledger"), "OMP_NUM_THREADS": "1",
            "TORCH_CUDNN_V8_API_DISABLED": "1",  # the interface of cuDNN that its stub has
            "TORCH_PLAIN_ALLOCATOR": str(options.plain_allocator), "TORCH_OWN_ALLOCATOR": str(options.library), **added}


class Zygote:
    """A process with PyTorch imported, for one allocator, with or without the library."""

    def __init__(self, options, allocator, is_preloaded, folder):
        environment = environment_of(options, allocator, folder)
        if is_preloaded:
            environment["LD_PRELOAD"] = str(options.library)
        self.process = subprocess.Popen([str(options.python), str(HERE / "zygote.py")], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, job):
        """The wait status of the job's process; None if the zygote itself has ended."""
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (OSError, ValueError):
            return None

    def end(self):
        try:
            self.process.stdin.close()
        except OSError:  # it has ended by itself, and each job says so
            pass
        self.process.wait()


def jobs_of(allocator, library, folder):
    """The jobs of one allocator and one setting of the library."""
    for area, variables in AREAS.items():
        if allocator not in cases.AREAS[area].allocators or area in WITHOUT_BASELINE and library not in COUNTING:
            continue
        base = os.path.join(folder, f"{allocator}-{library}-{area}".replace(" ", "-"))
        environment = {**variables, **LIBRARIES[library]}
        environment["GPUCACHE_REPORT"] = "none" if library == "none" else base + ".json"
        if area in LIMITED and library in COUNTING:
            environment.update(SIMCUDA_MEMORY="4GiB", GPUCACHE_LIMIT="1GiB")
        elif area in LIMITED:
            environment["SIMCUDA_MEMORY"] = "1GiB"
        yield {"name": f"{allocator}, {library}: {area}", "area": area, "allocator": allocator, "library": library,
               "environment": environment, "seconds": SECONDS, "output": base + ".out", "errors": base + ".err",
               "report": environment["GPUCACHE_REPORT"]}


def run_jobs(options, allocator, is_preloaded, jobs, folder):
    """All jobs of one zygote, with their results."""
    if not jobs:
        return
    zygote = Zygote(options, allocator, is_preloaded, folder)
    for job in jobs:
        job["status"] = zygote.run(job)
        job["stderr"], job["result"] = "", {}
        if os.path.exists(job["errors"]):
            job["stderr"] = pathlib.Path(job["errors"]).read_text(encoding="utf-8", errors="replace")
        try:
            job["result"] = json.loads(pathlib.Path(job["output"]).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            pass
    zygote.end()


def plain_text(text):
    """stderr without numbers that differ from run to run."""
    return re.sub(r"\d+", "N", without_addresses(text))


def without_addresses(text):
    return re.sub(r"0x[0-9a-f]+", "ADDRESS", text)


def without_log(job):
    """stderr without the lines of the library's that the job is to have, and each of them that is not there."""
    text, faults = job["stderr"], []
    wanted = dict.fromkeys(job["result"].get("log", []), True)
    if job["area"] in (*LIMITED, *WITHOUT_BASELINE):
        wanted[REFUSED] = job["library"] in COUNTING  # else where the library is PyTorch's allocator
    for pattern, is_wanted in wanted.items():
        text, found = re.subn(rf"^gpucache: {pattern}.*\n", "", text, flags=re.MULTILINE)
        if is_wanted and not found:
            faults.append(f"no log line: {pattern}")
    return text, faults


def report_faults(job):
    """Where the report does not say what the program did."""
    if not os.path.exists(job["report"]):
        return ["no report"]
    report = json.loads(pathlib.Path(job["report"]).read_text(encoding="utf-8"))
    faults = [f"the report warns: {warning}" for warning in report["warnings"]]
    device, result = report["devices"][0], job["result"]
    if device["invalid_free_count"]:
        faults.append(f"{device['invalid_free_count']} invalid frees")
    if report["mode"] != job["environment"]["GPUCACHE_MODE"]:
        faults.append(f"mode {report['mode']}")
    rows = device["by_api"]
    for figure in ("count", "current_bytes", "bytes"):
        for entry, number in result.get(figure, {}).items():
            if rows.get(entry, {}).get(figure) != number:
                faults.append(f"{entry}, {figure}: the report has {rows.get(entry)}, the program {number}; all: {rows}")
    for tenant in device["tenants"]:
        if result.get("tenants", {}).get(tenant["name"]) != tenant["requested_bytes"]["peak"]:
            faults.append(f"tenants: the report has {tenant}, the program {result.get('tenants')}")
    if len(result.get("tenants", {})) != len(device["tenants"]):
        faults.append(f"tenants: the report has {device['tenants']}")
    return faults


def ends_of(text):
    """The first lines of a long text and the last ones."""
    lines = text.splitlines()
    return lines if len(lines) < 50 else [*lines[:20], f"... {len(lines) - 40} lines ...", *lines[-20:]]


def process_faults(job):
    """How the job's process ended, where it was not by exit(0) with a result."""
    status, result = job["status"], job["result"]
    if status is None:
        return ["the process that forks the jobs has ended"]
    if os.WIFSIGNALED(status):
        late = f", after {SECONDS} s" if os.WTERMSIG(status) == signal.SIGALRM else ""
        return [f"ended by signal {os.WTERMSIG(status)}{late}", result.get("error", ""), *ends_of(job["stderr"])]
    if status != 0 or "error" in result or not result:
        return [f"exit status {os.WEXITSTATUS(status)}", result.get("error", "no result"), *ends_of(job["stderr"])]
    return []


def faults_of(job, baseline):
    """Everything wrong with a job, as text."""
    faults = process_faults(job)
    if faults:
        return faults
    text, faults = without_log(job)
    wanted_text = ""
    if baseline is not None and baseline is not job:
        wanted, wanted_text = baseline["result"].get("seen"), without_log(baseline)[0]
        if without_addresses(json.dumps(job["result"]["seen"], sort_keys=True)) != without_addresses(json.dumps(wanted, sort_keys=True)):
            faults.append(f"saw {job['result']['seen']}; without the library {wanted}")
    if baseline is not job and plain_text(text) != plain_text(wanted_text):
        faults.append(f"stderr: {text}; without the library: {wanted_text}")
    if job["library"] in COUNTING:
        faults += report_faults(job)
    elif os.path.exists(job["report"]):
        faults.append("a report in mode off")
    return faults


def check_symbols(options, results):
    """Each symbol of the runtime that PyTorch wants is in the stand-in: nothing is left to be missed at its first call."""
    exported = stubs.exported(options.build / "simcuda/libcudart.so.13")
    total = 0
    for library in options.libraries:
        names = {name for name in stubs.undefined(library) if name.endswith("@libcudart.so.13")}
        total += len(names)
        if names:
            missing = sorted(name for name in names if name not in exported)
            results.add(f"{library.name}: each of {len(names)} symbols of the runtime is in the stand-in", missing)
    results.add("PyTorch's libraries want symbols of the runtime", [] if total > 100 else [f"{total} of them"])


def set_up(options):
    """Fetches PyTorch and builds what it links against. The reason why it cannot, or None."""
    work = options.build / "torch"
    how = ["cached"] if options.short else []
    fetched = subprocess.run([str(ROOT / "scripts/torch-packages.sh"), str(work / "venv"), *how], capture_output=True, text=True,
                             check=False)
    if fetched.returncode:
        return (fetched.stderr.strip().splitlines() or ["no reason given"])[-1]
    options.python = work / "venv/bin/python3"
    [package] = work.glob("venv/lib/python3*/site-packages/torch")
    options.libraries = sorted([*package.glob("lib/*.so"), *package.glob("_C*.so")])
    options.library = options.build / "libgpucache.so"
    options.stubs = work / "stubs"
    compiler = os.environ.get("CC", "gcc")
    stubs.build(options.stubs, compiler, options.build / "simcuda/libcudart_static.a", options.libraries)
    options.plain_allocator = work / "libplain.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(options.plain_allocator), str(HERE / "plain_allocator.c"),
                    str(options.build / "simcuda/libcudart.so.13")], check=True)
    return None


def check_example(options, results):
    """examples/torch_allocator.py as a program of its own, without a preload."""
    with tempfile.TemporaryDirectory(prefix="gpucache-torch.") as folder:
        for scope in ([], ["pool"]):
            run = subprocess.run([str(options.python), str(ROOT / "examples/torch_allocator.py"), *scope],
                                 capture_output=True, text=True, check=False, timeout=SECONDS,
                                 env=environment_of(options, "own", folder, GPUCACHE_REPORT=f"{folder}/report.json",
                                                    PYTHONPATH=str(options.build / "python")))
            faults = [] if run.returncode == 0 and not run.stderr else [f"status {run.returncode}", *ends_of(run.stderr)]
            try:
                rows = json.loads(pathlib.Path(folder, "report.json").read_text(encoding="utf-8"))["devices"][0]["by_api"]
                if rows["gpucache_torch_malloc" if scope else "gpucache_malloc"]["bytes"] < 128 << 20:  # two matrices of 64 MiB at least
                    faults.append(f"its memory is not the library's: {rows}")
            except (OSError, KeyError) as error:
                faults.append(f"no report of its memory: {error}")
            results.add(" ".join(["examples/torch_allocator.py", *scope]), faults)


def run_matrix(options, results):
    def wanted(job):
        return not options.words or any(word in job["name"] for word in options.words)

    with tempfile.TemporaryDirectory(prefix="gpucache-torch.") as folder, \
            concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        running = []
        for allocator in ALLOCATORS:
            libraries = [name for name in LIBRARIES if name != "none" and (not options.short or (allocator, name) in SHORT)]
            preloaded = [job for library in libraries for job in jobs_of(allocator, library, folder) if wanted(job)]
            areas = {job["area"] for job in preloaded}
            plain = [job for job in jobs_of(allocator, "none", folder)
                     if job["area"] in areas or wanted(job) and not options.short]
            count = 1 if options.short else 2  # to import PyTorch takes as long as ten jobs
            parts = [(False, plain), *((True, preloaded[i::count]) for i in range(count))]
            running.append((plain, preloaded, [pool.submit(run_jobs, options, allocator, is_preloaded, jobs, folder)
                                               for is_preloaded, jobs in parts]))
        for plain, preloaded, futures in running:
            for future in futures:
                future.result()
            baselines = {job["area"]: job for job in plain}
            for job in plain + preloaded:
                results.add(job["name"], faults_of(job, baselines.get(job["area"])))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="the build folder")
    parser.add_argument("--short", action="store_true", help="six pairs of an allocator and a setting; nothing is fetched")
    parser.add_argument("words", nargs="*", help="run jobs with one of these in their names, such as `native, track: ipc`")
    options = parser.parse_args()
    options.build = options.build.resolve()
    results = Results()
    reason = set_up(options)
    if reason:
        results.add("PyTorch", [], f"its wheels cannot be had: {reason}" if not options.short else
                    f"its wheels are not in the user's cache, `make test-torch` fetches them: {reason}")
        return results.close()
    if not options.words:
        check_symbols(options, results)
        check_example(options, results)
    run_matrix(options, results)
    return results.close()


if __name__ == "__main__":
    sys.exit(main())
