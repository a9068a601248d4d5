#!/usr/bin/env python3
"""The test suites of other projects on the simulated device, without the library and with it, compared by test name.

usage: run.py --build DIR [--settings short|full|NAME,...] [--files WORD] [--jobs N] [--limit SECONDS] [--reuse] [SUITE...]

    numba            numba-cuda's tests, which its wheel has
    pycuda           PyCUDA's tests, from its source package, which pip compiles: nvcc must be on the PATH or in CUDA_HOME
    cuda-python-12   the tests in the wheel of cuda-python 12.6.0
    bindings, core   those of cuda-bindings and cuda-core: no registry has them. SUITES_SOURCES=FOLDER names the folder
                     with a checkout `cuda-python` of https://github.com/NVIDIA/cuda-python
    pytorch          test_cuda.py: SUITES_SOURCES=FOLDER with a checkout `pytorch`, or its folder `test` alone.
                     Debian has it as the source package `pytorch`
    samples          SUITES_SAMPLES=FOLDER holds NVIDIA's samples as programs that are already built (with nvcc -cudart
                     shared); nothing here builds them. Exit status and output are compared, numbers left out

A suite without its source, or whose packages cannot be fetched, is a skip with a line that says so. Each suite has its
environment in DIR/suites, by requirements/NAME.txt. Each test file runs in a process of its own (runs.py), --limit
seconds (120) a test. Settings: short (cache-vmm, cache-driver, track), full, or names of runs.py. --reuse takes what an
earlier run left in DIR/suites/results.

A name whose outcome with the library is worse than without fails, unless differences.txt has it with a reason; a line
there that no longer holds fails too. A difference counts only if it shows in each of three runs of the test alone.
Kernels compute nothing on the simulated device: many tests fail both ways. The list of their messages says why.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

import runs

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
SHORT = ["cache-vmm", "cache-driver", "track"]
RANK = {"passed": 0, "xfailed": 1, "skipped": 1, "failed": 2, "error": 2, "timeout": 3, "crashed": 4}
TRIES = 3


class Unavailable(Exception):
    """Why a suite cannot run here."""


class Suite:
    """Where a suite's tests are, and how they are started; the folder is what its names are relative to."""
    name = venv_name = ""
    arguments = []
    environment = {}
    libraries = []

    def __init__(self, build):
        self.build = build
        self.work = build / "suites"
        self.home = self.work / "home" / self.name
        self.home.mkdir(parents=True, exist_ok=True)
        self.venv = self.work / (self.venv_name or self.name)
        self.folder = self.prepare().resolve()  # as pytest does, whose names are relative to it

    def prepare(self):
        """Fetches what is missing; the folder of the tests."""
        raise NotImplementedError

    def targets(self):
        """The names of the test files."""
        raise NotImplementedError

    def run(self, setting, target, limit, only=None):
        return runs.run_file(self, setting, target, self.build, limit, only)

    def make_venv(self, **environment):
        """The environment is marked when it is whole, with what it was made from."""
        self.install([[sys.executable, "-m", "venv", "--clear", self.venv]], self.venv_name or self.name, self.venv / "complete",
                     environment)

    def install(self, before, requirements_name, marker, environment):
        requirements = HERE / "requirements" / f"{requirements_name}.txt"
        if marker.exists() and marker.read_text() == requirements.read_text():
            return
        for command in (*before, [self.venv / "bin/pip", "install", "-q", "--disable-pip-version-check", "--no-input", "-r",
                                  requirements]):
            made = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                                  env={**os.environ, **environment})
            if made.returncode:
                raise Unavailable(f"its packages could not be fetched: {(made.stderr.strip() or 'no reason given')[-300:]}")
        marker.write_text(requirements.read_text())

    def site(self):
        return next((self.venv / "lib").glob("python3*")) / "site-packages"


def source(*places):
    """The first of the places in SUITES_SOURCES."""
    folder = os.environ.get("SUITES_SOURCES")
    for place in places:
        if folder and (pathlib.Path(folder) / place).exists():
            return (pathlib.Path(folder) / place).resolve()
    raise Unavailable(f"no registry has its tests: SUITES_SOURCES={folder or ''} names no folder with {places[0]}")


def files_below(folder, place):
    return sorted(str(path.relative_to(folder)) for path in (folder / place).rglob("test_*.py") if "cython" not in path.parts)


class Numba(Suite):
    """`cudasim` and `nocuda` use no device; the benchmarks need kernels' results."""
    name = "numba"
    arguments = ["-p", "numba_fixture", "-o", "consider_namespace_packages=true", "--pyargs"]

    def prepare(self):
        self.make_venv()
        return self.site() / "numba_cuda"

    def targets(self):
        return [file[:-3].replace("/", ".") for file in files_below(self.folder, "numba/cuda/tests")
                if not re.search("/(cudasim|nocuda|benchmarks)/", file)]


class Pycuda(Suite):
    name = "pycuda"

    def prepare(self):
        cuda = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
        self.environment = {"PATH": f"{cuda}/bin:{os.environ['PATH']}"}
        self.libraries = [cuda / "lib64"]
        if subprocess.run(["sh", "-c", "command -v nvcc g++"], env=self.environment, stdout=subprocess.DEVNULL,
                          check=False).returncode:
            raise Unavailable("it needs nvcc and g++")
        self.make_venv(**self.environment, LIBRARY_PATH=str(self.build / "simcuda"), CUDA_ROOT=str(cuda))
        folder = self.work / "pycuda-source"
        if not (folder / "test").is_dir():
            wanted = next(line for line in (HERE / "requirements/pycuda.txt").read_text().split() if line.startswith("pycuda=="))
            fetched = subprocess.run([str(self.venv / "bin/pip"), "download", "-q", "--no-deps", "--no-binary", "pycuda", "-d",
                                      str(folder), wanted], capture_output=True, text=True, check=False)
            if fetched.returncode:
                raise Unavailable(f"its tests could not be fetched: {fetched.stderr.strip()[-300:]}")
            subprocess.run(["tar", "-xf", str(next(folder.glob("pycuda-*.tar.gz"))), "-C", str(folder), "--strip-components=1",
                            "--wildcards", "*/test/test_*.py"], check=True)
        return folder

    def targets(self):
        return files_below(self.folder, "test")


class CudaPython12(Suite):
    name = "cuda-python-12"
    arguments = ["--benchmark-disable"]
    environment = {"SIMCUDA_DRIVER_VERSION": "12060"}

    def prepare(self):
        self.make_venv()
        self.libraries = [self.site() / "nvidia/cuda_nvrtc/lib"]
        return self.site() / "cuda"

    def targets(self):
        return files_below(self.folder, "tests")


class Bindings(Suite):
    name = "bindings"
    venv_name = "cuda-python"
    part = "cuda_bindings"

    def prepare(self):
        folder = source(f"cuda-python/{self.part}")
        places = [HERE, HERE / "site", folder.parent / "cuda_python_test_helpers"]
        self.environment = {"PYTHONPATH": os.pathsep.join(map(str, places)),
                            "SUITES_HELPERS": str(folder.parent / "cuda_bindings/cuda/bindings")}
        self.make_venv()
        return folder

    def targets(self):
        return files_below(self.folder, "tests")


class Core(Bindings):
    name = "core"
    part = "cuda_core"


class Pytorch(Suite):
    """The environment, and the stand-ins of the libraries beside the runtime, are those of tests/torch."""
    name = "pytorch"

    def prepare(self):
        folder = source("pytorch/test/test_cuda.py", "pytorch/test_cuda.py").parent
        torch = self.build / "torch"
        self.venv = torch / "venv"
        script = ROOT / "scripts/torch-packages.sh"
        if not script.exists():
            raise Unavailable("it needs tests/torch and scripts/torch-packages.sh")
        fetched = subprocess.run([str(script), str(self.venv)], capture_output=True, text=True, check=False)
        if fetched.returncode:
            raise Unavailable(f"PyTorch could not be fetched: {fetched.stderr.strip()[-300:]}")
        sys.path.insert(0, str(ROOT / "tests/torch"))
        import stubs  # pylint: disable=import-outside-toplevel
        package = self.site() / "torch"
        stubs.build(torch / "stubs", os.environ.get("CC", "gcc"), self.build / "simcuda/libcudart_static.a",
                    sorted([*package.glob("lib/*.so"), *package.glob("_C*.so")]))
        self.install([], self.name, self.venv / "tests-complete", {})
        self.libraries = [torch / "stubs"]
        self.environment = {"TORCH_CUDNN_V8_API_DISABLED": "1", "PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK": "1"}
        return folder

    def targets(self):
        return ["test_cuda.py"]


class Samples(Suite):
    name = "samples"

    def prepare(self):
        folder = os.environ.get("SUITES_SAMPLES")
        if not folder or not pathlib.Path(folder).is_dir():
            raise Unavailable(f"SUITES_SAMPLES={folder or ''} names no folder with NVIDIA's samples as built programs")
        return pathlib.Path(folder).resolve()

    def targets(self):
        return sorted(path.name for path in self.folder.iterdir() if path.is_file() and os.access(path, os.X_OK)
                      and path.suffix in ("", ".exe"))

    def run(self, setting, target, limit, only=None):
        return runs.run_program(self, setting, target, self.build, limit)


SUITES = {suite.name: suite for suite in (Numba, Pycuda, CudaPython12, Bindings, Core, Pytorch, Samples)}


def is_worse(suite, without, below):
    if suite.name == "samples" and without[0] == below[0]:
        return without[1] != below[1]
    return RANK[below[0]] > RANK[without[0]]


def run_suite(suite, settings, options):
    """{setting: {name: (outcome, message)}}, by files on all processors; kept in the folder `results`."""
    targets = [target for target in suite.targets() if options.files in target]
    kept = suite.work / "results" / suite.name
    kept.mkdir(parents=True, exist_ok=True)
    results, work = {}, []
    for setting in settings:
        file = kept / f"{setting}.json"
        if options.reuse and file.exists():
            results[setting] = {name: tuple(result) for name, result in json.loads(file.read_text()).items()}
        else:
            results[setting] = {}
            work += [(setting, target) for target in targets]
    work.sort(key=lambda pair: targets.index(pair[1]))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for (setting, _), found in zip(work, pool.map(lambda pair: suite.run(*pair, options.limit), work)):
            results[setting].update(found)
    for setting in settings:
        (kept / f"{setting}.json").write_text(json.dumps(results[setting], indent=1, sort_keys=True))
    return results


def confirm(suite, setting, name, options):
    """The pair of results of a difference that stands in each of three runs of the test alone, else None."""
    target = name.split("::")[0]
    if "--pyargs" in suite.arguments:
        target = target.removesuffix(".py").replace("/", ".")
    only = None if name.endswith(("::(exit)", "::(import)")) else {name}
    pair = None
    for _ in range(TRIES):
        without, below = (suite.run(each, target, options.limit, only).get(name, ("skipped", "not collected"))
                          for each in ("none", setting))
        if not is_worse(suite, without, below):
            return None
        pair = (without, below)
    return pair


def read_differences():
    """{(suite, setting, name)} of differences.txt, and what is wrong with it."""
    listed, problems, has_reason = set(), [], False
    for line in (HERE / "differences.txt").read_text().splitlines():
        if line.startswith("#"):
            has_reason = True
        elif not line.strip():
            has_reason = False
        else:
            where, name = line.split(": ", 1)
            if not has_reason:
                problems.append(f"{line[:80]}: no reason above it")
            listed.add((*where.split(), name))
    return listed, problems


class Tally:
    """Counts over all suites, and the lines of differences.txt that occurred."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.listed, problems = read_differences()
        self.seen = set()
        for problem in problems:
            self.fail(problem)

    def fail(self, *lines):
        self.failed += 1
        print("not ok - " + "\n#   ".join(lines), flush=True)

    def known(self, suite, setting, name):
        lines = {(suite, each, name) for each in (setting, "*")} & self.listed
        self.seen |= lines
        return bool(lines)


def compare(suite, setting, without, below, options, tally):
    """One setting's results beside those without the library."""
    counts = collections.Counter()
    for name in sorted(without.keys() | below.keys()):
        before, after = (side.get(name, ("skipped", "not collected")) for side in (without, below))
        counts["tests"] += not name.endswith(("::(exit)", "::(import)"))
        if not is_worse(suite, before, after):
            if RANK[after[0]] < RANK[before[0]]:
                counts["better"] += 1
                print(f"# {suite.name}, {setting}: {name}: {before[0]} without the library, {after[0]} with it", flush=True)
            else:
                counts[{0: "passed", 1: "skipped"}.get(RANK[before[0]], "failed") + " both ways"] += 1
            tally.passed += 1
            continue
        pair = confirm(suite, setting, name, options)
        if pair is None:
            counts["different once"] += 1
            tally.passed += 1
            print(f"# {suite.name}, {setting}: {name}: {after[0]} once, alike when run alone: {after[1][:200]!r}",
                  flush=True)
        elif tally.known(suite.name, setting, name):
            counts["different as listed"] += 1
            tally.passed += 1
        else:
            counts["different"] += 1
            tally.fail(f"{suite.name}, {setting}: {name}", f"without the library {pair[0][0]}: {pair[0][1][-1500:]}",
                       f"with it {pair[1][0]}: {pair[1][1][-1500:]}")
    print(f"{suite.name}, {setting}: {counts.pop('tests')} tests; "
          + ", ".join(f"{counts[kind]} {kind}" for kind in ("passed both ways", "failed both ways", "skipped both ways", "better",
                                                          "different once", "different as listed", "different")), flush=True)


def reasons(suite, without, count):
    """Why tests fail without the library: what the simulated device lacks."""
    found = collections.Counter()
    for name, (outcome, message) in without.items():
        if RANK[outcome] >= 2:
            lines = message.strip().splitlines() or ["no message"]
            found[f"{outcome}: {runs.plain(lines[-1 if name.endswith('::(import)') else 0])[:150]}"] += 1
    print(f"{suite.name}, without the library: {sum(found.values())} fail")
    for reason, number in found.most_common(count):
        print(f"{number:6} {reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="the build folder")
    parser.add_argument("--settings", default="short", help="short, full, or names with commas")
    parser.add_argument("--files", default="", help="a word in the names of the test files")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--limit", type=float, default=120, help="seconds a test may take")
    parser.add_argument("--reasons", type=int, default=15, help="how many reasons of failures to print")
    parser.add_argument("--reuse", action="store_true", help="take the results of an earlier run")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    options = parser.parse_args()
    options.build = options.build.resolve()
    settings = {"short": SHORT, "full": [name for name in runs.SETTINGS if name != "none"]}.get(
        options.settings, options.settings.split(","))
    unknown = [name for name in settings if name not in runs.SETTINGS] + [name for name in options.suites if name not in SUITES]
    if unknown:
        parser.error(f"unknown: {' '.join(unknown)}")
    tally, ran = Tally(), set()
    for name in options.suites or SUITES:
        try:
            suite = SUITES[name](options.build)
        except Unavailable as reason:
            tally.skipped += 1
            print(f"SKIP {name}: {reason}", flush=True)
            continue
        results = run_suite(suite, ["none", *settings], options)
        for setting in settings:
            compare(suite, setting, results["none"], results[setting], options, tally)
            ran.add((name, setting))
        reasons(suite, results["none"], options.reasons)
        if not any(outcome == "passed" and not test.endswith("::(exit)") for test, (outcome, _) in results["none"].items()):
            tally.fail(f"{name}: no test passes without the library")
    for suite, setting, test in sorted(tally.listed - tally.seen):
        if not options.files and ((suite, setting) in ran or setting == "*" and any(each == suite for each, _ in ran)):
            tally.fail(f"differences.txt lists {suite} {setting}: {test}, which is no difference")
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
