#!/usr/bin/env python3
"""The wheel in a fresh virtual environment: the command, the library, the package gpucache, and PyTorch on the simulated device.

usage: run.py --build DIR --wheel FILE.whl [--system FOLDER]

PyTorch is the wheel of PyPI (scripts/torch-packages.sh), its runtime the project's stand-in (tests/torch/stubs.py); it is shown
to the fresh environment by a path file. --system names a Debian 11 made by debootstrap, with python3-venv: glibc 2.31, the
oldest that the wheel's tag allows; the wheel is installed and tried there, too.

Prints TAP, and at the end, alone on the last line, `N passed, N failed, N skipped`.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE.parent), str(ROOT / "tests/torch")]

import stubs  # noqa: E402
import tap  # noqa: E402

MIB = 1 << 20
CLEARED = ("GPUCACHE_", "SIMCUDA_", "CUDA_", "LD_", "PYTORCH_", "TORCH", "PYTHON")


class Place:
    """The virtual environment and a folder for files."""

    def __init__(self, options, folder):
        self.folder = pathlib.Path(folder)
        self.venv = self.folder / "venv"
        self.python = self.venv / "bin/python"
        self.libraries = [options.build / "simcuda"]
        self.kept = {key: value for key, value in os.environ.items() if not key.startswith(CLEARED)}

    def run(self, *command, **variables):
        """The finished process of a command in the folder, with the environment's programs first on PATH."""
        environment = {**self.kept, "PATH": f"{self.venv}/bin:{os.environ['PATH']}", "HOME": str(self.folder),
                       "LD_LIBRARY_PATH": ":".join(map(str, self.libraries)), "GPUCACHE_LEDGER": str(self.folder / "ledger"),
                       "OMP_NUM_THREADS": "1", "SIMCUDA_MEMORY": "4GiB", **variables}
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=170,
                              env=environment, cwd=self.folder)

    def call(self, code, **variables):
        """What a piece of Python prints, its last line as JSON; the error as text."""
        done = self.run(self.python, "-c", code, **variables)
        try:
            return json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            return f"status {done.returncode}: {done.stdout}{done.stderr}"


def shown(done):
    return f"status {done.returncode}\n{done.stdout}{done.stderr}"


def test_install(options, place):
    """A fresh environment with nothing but the wheel."""
    subprocess.run([sys.executable, "-m", "venv", str(place.venv)], check=True)
    done = place.run(place.python, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-index", options.wheel)
    tap.ok("pip installs the wheel, without other packages", done.returncode == 0, shown(done))
    version = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
    done = place.run("gpucache", "--version")
    tap.equal("gpucache is on PATH", done.stdout, f"gpucache {version}\n", shown(done))
    got = place.call("import gpucache, json, sys; print(json.dumps([gpucache.version(), gpucache.path(), gpucache.is_preloaded()]))")
    library = str(next(place.venv.glob("lib/python3*/site-packages/gpucache/lib/libgpucache.so")))
    tap.equal("the package's library", got, [version, library, False])
    got = place.call("import gpucache, json; print(json.dumps([gpucache.path(), gpucache.is_preloaded()]))", LD_PRELOAD=library)
    tap.equal("the preload's library where there is one", got, [library, True])
    done = place.run("gpucache", "doctor", "--json", place.python)
    tap.ok("doctor: library and module are of one build", '"severity":"failure"' not in done.stdout.replace(" ", "")
           and "libgpucache-model.so" in done.stdout, shown(done))
    done = place.run("gpucache", "no-such-command")
    tap.ok("a wrong command: the tool's status and words", done.returncode == 2 and "unknown command" in done.stderr, shown(done))


def test_figures(place):
    """The package's table is the header's struct."""
    header = (ROOT / "core/gpucache.h").read_text(encoding="utf-8")
    struct = re.search(r"struct gpucache_statistics \{(.*?)\};", header, re.S).group(1)
    wanted = re.findall(r"uint64_t (\w+);", struct)[1:]
    got = place.call("import gpucache, json; print(json.dumps(gpucache.Statistics._fields))")
    tap.equal("Statistics has the members of struct gpucache_statistics", got, wanted)
    got = place.call("import gpucache, json\ntry:\n  gpucache.statistics()\n"
                     "except gpucache.Error as e:\n  print(json.dumps([e.status, str(e)]))")
    tap.ok("figures before the first CUDA call: an error with its status", isinstance(got, list) and got[0] == 1, got)


def test_records(options, place):
    """Reports and traces of a small CUDA program, read in Python and by the tool."""
    program = options.build / "tests/demo/train_driver"
    done = place.run("gpucache", "run", "--limit", "2GiB", "--report", "r.json", "--trace", "t", "--", program)
    tap.ok("gpucache run of a CUDA program", done.returncode == 0, shown(done))
    got = place.call("""
import gpucache, json
r = gpucache.read_report("r.json")
d = r.devices[0]
print(json.dumps([r.schema, r.program, d.limit_bytes, d.reserved_bytes.peak, d.alloc_count, d.leaks, sorted(d.by_api),
                  next(iter(d.by_api.values())).count, sum(d.driver_calls.values())]))""")
    raw = json.loads((place.folder / "r.json").read_text(encoding="utf-8"))
    device = raw["devices"][0]
    tap.equal("a report as objects", got,
              [raw["schema"], "train_driver", 2 << 30, device["reserved_bytes"]["peak"], device["alloc_count"], [],
               sorted(device["by_api"]), next(iter(device["by_api"].values()))["count"], sum(device["driver_calls"].values())])
    got = place.call("""
import gpucache, json
t = gpucache.read_trace("t")
a = t.allocations()
print(json.dumps([t.pid, t.peak_bytes(), t.peak_bytes(0), len(a), [[x.id, x.bytes, x.stream] for x in a], a[0].api,
                  sum(x.end_ns is None for x in a), len(t) >= sum(e.op in ("alloc", "free") for e in t)]))""")
    rows = [line.split(",") for line in place.run("gpucache", "trace", "t", "--csv").stdout.splitlines()[1:]]
    summary = json.loads(place.run("gpucache", "trace", "t", "--json").stdout)
    begun = [[int(row[1]), int(row[2]), int(row[3])] for row in rows if row[0] == "a"]
    ended = sum(row[0] == "f" for row in rows)
    tap.equal("a trace as objects: the tool's figures", got,
              [raw["pid"], summary["peak_live_bytes"], summary["peak_live_bytes"], len(begun), begun,
               next(iter(device["by_api"])), len(begun) - ended, True])
    done = place.run("gpucache", "run", "--trace", "stacks", "--report", "none", "--", program, GPUCACHE_STACKS="all")
    got = place.call("""
import gpucache, json
t = gpucache.read_trace("stacks")
a = t.allocations()
print(json.dumps([len(a), all(any("train_driver+" in frame for frame in x.stack) for x in a), len(t.stacks()) == len({x.stack for x in a})]))""")
    tap.equal("the call stack of each allocation", got, [len(begun), True, True], shown(done))
    for name, text in (("empty", b""), ("text", b"no record\n"), ("cut", (place.folder / "t").read_bytes()[:50]),
                       ("later", b"GPUCTRC\n\x09" + (place.folder / "t").read_bytes()[9:]), ("list", b"[]"),
                       ("schema", b'{"schema": "gpucache-report/9"}')):
        (place.folder / name).write_bytes(text)
    got = place.call("""
import gpucache, json
seen = []
for call, name in [(call, name) for call in (gpucache.read_report, gpucache.read_trace)
                   for name in ("empty", "text", "cut", "later", "list", "schema")]:
    try:
        call(name)
        seen.append("read")
    except ValueError as error:
        seen.append(str(error).startswith(name + ": "))
print(json.dumps(seen))""")
    tap.equal("files that are no report or trace: ValueError with the name", got, [True] * 12)
    whole = (place.folder / "t").read_bytes()
    (place.folder / "partial").write_bytes(whole[:-7])
    got = place.call("import gpucache, json; print(json.dumps([len(gpucache.read_trace(n)) for n in ('t', 'partial')]))")
    tap.ok("a trace that ends within a record is read up to there", isinstance(got, list) and got[1] == got[0] - 1, got)


def test_programs(place):
    """PyTorch, unmodified, under `gpucache run`."""
    done = place.run("gpucache", "run", "--limit", "1GiB", "--report", "train.json", "--", "python", HERE / "train.py", 1200 * MIB)
    tap.ok("gpucache run -- python train.py", done.returncode == 0 and "trained (256, 64)" in done.stdout, shown(done))
    tap.ok("beyond the limit: torch.OutOfMemoryError", "refused: CUDA out of memory." in done.stdout, shown(done))
    tap.ok("the limit is the device's memory", re.search(rf"^free of \d+ {1 << 30}$", done.stdout, re.M), shown(done))
    got = place.call("import gpucache, json; d = gpucache.read_report('train.json').devices[0]\n"
                     "print(json.dumps([d.limit_bytes, 0 < d.reserved_bytes.peak <= d.limit_bytes, d.oom_count > 0]))")
    tap.equal("its report", got, [1 << 30, True, True])
    done = place.run("gpucache", "run", "--limit", "1GiB", "--", "python", HERE / "train.py", 700 * MIB)
    tap.ok("within the limit: served", "served" in done.stdout, shown(done))


def seen_by(place, way, **variables):
    done = place.run(place.python, HERE / "allocator.py", way, GPUCACHE_REPORT=f"{way}.json", SIMCUDA_WORK_US="3000", **variables)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        tap.ok(f"gpucache.torch, {way}", False, shown(done))
        return None


def test_common(way, seen):
    tap.ok(f"{way}: content", seen["content"])
    tap.equal(f"{way}: beyond the limit: PyTorch's own error", seen["refused"][:2], ["torch", "OutOfMemoryError"], seen["refused"])
    tap.ok(f"{way}: its text has the size", "Tried to allocate 1.95 GiB" in seen["refused"][2], seen["refused"])
    tap.ok(f"{way}: the library refused it", seen["requests"] >= 1 and seen["limit"] == 320 * MIB and seen["within"], seen)
    tap.equal(f"{way}: PyTorch goes on", seen["served after"], 200 * MIB)


def test_allocators(place):
    """gpucache.torch: all of PyTorch's memory, and a pool's."""
    for title, variables in (("install", {}), ("install, preloaded", {"LD_PRELOAD": place.library})):
        seen = seen_by(place, "install", **variables)
        if seen is None:
            continue
        test_common(title, seen)
        tap.equal(f"{title}: which library", [seen["path"], seen["preloaded"]], [place.library, bool(variables)])
        tap.ok(f"{title}: the error says what there is", re.search(r"GPU 0 has 4\.00 GiB, the limit is 320\.00 MiB, live are ",
                                                                    seen["refused"][2]), seen["refused"])
        for thread in ("backward", "thread"):
            tap.equal(f"{title}: the error in another thread: {thread}", (seen[thread] or [])[:2], ["torch", "OutOfMemoryError"])
        tap.ok(f"{title}: memory after errors", seen["after"])
        tap.equal(f"{title}: freed memory is reused at once, unless record_stream holds it", seen["reused at once"], [True, False])
        tap.ok(f"{title}: 3,000 errors leave nothing behind", seen["growth_mib"] <= 4, f"{seen['growth_mib']} MiB")
        tap.equal(f"{title}: torch.cuda.empty_cache releases idle memory", seen["idle"], 0)
        tap.equal(f"{title}: set_per_process_memory_fraction sets the limit", seen["fraction"], [2 << 30, 4 << 30])
        tap.equal(f"{title}: a second time: PyTorch's refusal", (seen["second"] or [])[:2], ["builtins", "RuntimeError"])
    for title, variables in (("graphs", {}), ("graphs, preloaded", {"LD_PRELOAD": place.library})):
        seen = seen_by(place, "graphs", **variables)
        if seen is None:
            continue
        tap.equal(f"{title}: replays beside other tensors: wrong results", seen["wrong"], 0)
        tap.ok(f"{title}: memory of a capture is used again within it", seen["kept"] <= 4 * 3 * MIB, seen)
        tap.ok(f"{title}: not that which another stream uses", seen["recorded"], seen)
        tap.equal(f"{title}: no memory in a capture", (seen["refused"] or [])[:2], ["torch", "OutOfMemoryError"], seen)
        tap.ok(f"{title}: a pool lives as long as its last graph", seen["shared"], seen)
        tap.equal(f"{title}: then its memory goes back", seen["left"], 0)
    seen = seen_by(place, "pool")
    if seen is not None:
        test_common("pool", seen)
        tap.equal("pool: its memory is the library's, in PyTorch's cache", seen["pool"], [True, True])
        tap.equal("pool: another one", seen["another"], MIB)
        tap.equal("pool: its end gives all back", seen["left"], 0)


def set_up_torch(options, place):
    """Shows PyTorch to the environment. The reason why it cannot, or None."""
    work = options.build / "torch"
    fetched = subprocess.run([str(ROOT / "scripts/torch-packages.sh"), str(work / "venv")], capture_output=True, text=True,
                             check=False)
    if fetched.returncode:
        return (fetched.stderr.strip().splitlines() or ["no reason given"])[-1]
    [package] = work.glob("venv/lib/python3*/site-packages/torch")
    stubs.build(work / "stubs", os.environ.get("CC", "gcc"), options.build / "simcuda/libcudart_static.a",
                sorted([*package.glob("lib/*.so"), *package.glob("_C*.so")]))
    place.libraries.append(work / "stubs")
    [packages] = place.venv.glob("lib/python3*/site-packages")
    (packages / "pytorch.pth").write_text(f"{package.parent}\n", encoding="utf-8")
    return None


def test_old_system(options):
    """The wheel on the oldest system of its tag."""
    inside = options.system / "root/wheel"
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir(parents=True)
    shutil.copy(options.wheel, inside)
    script = f"""set -e; cd /root/wheel; ldd --version | head -n 1; python3 -m venv v
        v/bin/pip --disable-pip-version-check install -q --no-index ./{options.wheel.name}; v/bin/gpucache --version
        v/bin/gpucache top --once; v/bin/gpucache doctor v/bin/python || true
        v/bin/python -c 'import gpucache; print("python", gpucache.version(), gpucache.path())'
        printf 'id,lower,upper,size\\n1,0,5,100\\n2,3,9,200\\n' > p.csv; v/bin/gpucache plan p.csv
        TERM=xterm v/bin/gpucache run --limit 1GiB -- v/bin/python -c 'print(open("/proc/self/maps").read())' | grep -c libgpucache"""
    enter = 'mount -t proc proc "$1/proc" && exec chroot "$1" /bin/sh -c "$2"'
    done = subprocess.run(["unshare", "-m", "-p", "-f", "sh", "-c", enter, "sh", str(options.system), script], capture_output=True,
                          text=True, check=False)
    tap.ok("glibc 2.31: pip, the tool, the package, a preload", done.returncode == 0 and "2.31" in done.stdout.splitlines()[0]
           and "can be preloaded" in done.stdout, shown(done))
    shutil.rmtree(inside)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    for name in ("--build", "--wheel"):
        parser.add_argument(name, type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--system", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpucache-wheel.") as folder:
        place = Place(options, folder)
        test_install(options, place)
        place.library = str(next(place.venv.glob("lib/python3*/site-packages/gpucache/lib/libgpucache.so")))
        test_figures(place)
        test_records(options, place)
        reason = set_up_torch(options, place)
        if reason:
            tap.skip("PyTorch", reason)
        else:
            test_programs(place)
            test_allocators(place)
    if options.system:
        test_old_system(options)
    return tap.close()


if __name__ == "__main__":
    sys.exit(main())
