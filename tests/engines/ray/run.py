#!/usr/bin/env python3
"""Ray and Dask, of PyPI, on the simulated device: the plugin gpucache.ray, and Dask's documented setting (examples/deploy/dask.yaml).

usage: run.py --build DIR --wheel FILE.whl [WORD...]     WORDs: only scenes with one of them in their names

One node of Ray's, started by `ray start` with one device of 16 GiB that its workers share; each scene is a driver of its own
(ray_program.py), whose tasks take all the memory that they get. The environment is BUILD/ray/venv (requirements.txt), the wheel is
installed into it anew.

Prints TAP, and at the end, alone on the last line, `N passed, N failed, N skipped`.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE.parent))

import tap  # noqa: E402

MIB = 1 << 20
GIB = 1 << 30
DEVICE = 16 * GIB
SECONDS = 240
CLEARED = ("GPUCACHE_", "SIMCUDA_", "CUDA_", "LD_", "RAY_", "DASK_", "PYTHON")
PLUGINS = '[{"class": "gpucache.ray.GpuMemory"}]'


class Place:
    """The environment of programs, and a folder for files."""

    def __init__(self, options, folder):
        self.folder = pathlib.Path(folder)
        self.venv = options.build / "ray/venv"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(CLEARED)}
        self.environment = {**kept, "PATH": f"{self.venv}/bin:{os.environ['PATH']}", "HOME": str(self.folder),
                            "LD_LIBRARY_PATH": str(options.build / "simcuda"), "GPUCACHE_LEDGER": str(self.folder / "ledger"),
                            "SIMCUDA_MEMORY": "16GiB", "SIMCUDA_SHARED": f"ray{os.getpid()}", "RAY_USAGE_STATS_ENABLED": "0",
                            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}

    def run(self, *command, **variables):
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=SECONDS,
                              env={**self.environment, **variables}, cwd=self.folder)

    def start(self, *command, **variables):
        """A process that stays."""
        log = open(self.folder / f"{command[1]}.log", "a", encoding="utf-8")  # pylint: disable=consider-using-with
        return subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, env={**self.environment, **variables},
                                cwd=self.folder, start_new_session=True)


def shown(done):
    return f"status {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"


def set_up(options, place):
    """The environment; the reason why it cannot be, or None."""
    wanted = (HERE / "requirements.txt").read_text(encoding="utf-8")
    complete = place.venv / "complete"
    python = place.venv / "bin/python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-q", "--no-deps"]
    if not complete.exists() or complete.read_text(encoding="utf-8") != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place.venv)], check=True)
        done = subprocess.run([*pip, "--only-binary", ":all:", "-r", str(HERE / "requirements.txt")], capture_output=True, text=True,
                              check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        complete.write_text(wanted, encoding="utf-8")
    subprocess.run([*pip, "--no-index", "--force-reinstall", str(options.wheel)], check=True)
    place.library = str(next(place.venv.glob("lib/python3*/site-packages/gpucache/lib/libgpucache.so")))
    return None


def test_look(name, seen, limit, shown_too=""):
    """A task that took all it could: the limit is the device's size, not a byte more was held, and not a page less."""
    if not isinstance(seen, dict) or not isinstance(seen.get("figures"), list) or len(seen["figures"]) != 3:
        tap.ok(name, False, f"{seen} {shown_too}")
        return
    got_limit, reserved, peak = seen["figures"]
    good = seen["total"] == got_limit == limit and peak <= limit and reserved + 2 * MIB > limit
    tap.ok(f"{name}: {limit} bytes, held {peak}", good, seen)


class Scenes:
    """The tests of Ray; each method runs the scene of its name, in a driver, and judges what it saw."""

    def __init__(self, place):
        self.place = place

    def see(self, scene, **variables):
        done = self.place.run(self.place.venv / "bin/python", HERE / "ray_program.py", scene, **variables)
        try:
            return json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            tap.ok(f"the scene {scene}", False, shown(done))
            return None

    def sizes(self, seen):
        for size, limit in (("4GiB", 4 * GIB), ("1000MB", 1000 * 10**6), ("12.5%", 2 * GIB), ("0=3GiB", 3 * GIB)):
            test_look(f"gpu_memory {size}", seen[size], limit)
        tap.ok("the package's library is preloaded", seen["4GiB"]["preload"] == self.place.library, seen["4GiB"])

    @staticmethod
    def fractions(seen):
        for gpus, limit in (("0.25", DEVICE // 4), ("0.5", DEVICE // 2), ("0.3333", int(DEVICE * 0.3333)), ("1", DEVICE)):
            test_look(f"num_gpus={gpus}", seen[gpus], limit)
        tap.equal("num_gpus=0: no device", [seen["0"]["cuInit"], "total" in seen["0"]], [1, False])

    @staticmethod
    def together(seen):
        for limit, one in zip((GIB, 3 * GIB), seen):
            test_look("two tasks at once", one, limit)
        tap.ok("two tasks at once: they were", seen[0]["begin"] < seen[1]["end"] and seen[1]["begin"] < seen[0]["end"]
               and seen[0]["pid"] != seen[1]["pid"], seen)

    @staticmethod
    def actors(seen):
        for size, limit in (("2GiB", 2 * GIB), ("num_gpus", DEVICE // 4)):
            for number, one in enumerate(seen[size], 1):
                test_look(f"an actor, {size}, call {number}", one, limit)
            tap.equal(f"an actor, {size}: one process", len({one["pid"] for one in seen[size]}), 1)

    @staticmethod
    def placement(seen):
        test_look("half a device of a placement group", seen, DEVICE // 2)

    @staticmethod
    def reuse(seen):
        for number, (part, one) in enumerate(zip((4, 2, 8, 8), seen), 1):
            test_look(f"a worker's task {number}", one, DEVICE // part)
        tap.equal("a worker's tasks: one process", len({one["pid"] for one in seen}), 1)

    @staticmethod
    def children(seen):
        for size, limit in (("2GiB", 2 * GIB), ("num_gpus", DEVICE // 4)):
            held = sum(seen[size])
            tap.ok(f"a task's three processes, {size}: {limit} bytes together, held {held}",
                   len(seen[size]) == 3 and limit - 4 * MIB <= held <= limit, seen)

    @staticmethod
    def group(seen):
        held = sum(one["figures"][1] for one in seen)
        tap.ok(f"two tasks of 2 GiB in the user's group of 3 GiB: held {held}", 3 * GIB - 4 * MIB <= held <= 3 * GIB
               and {one["group"] for one in seen} == {"users"}, seen)

    def preload(self, seen):
        tap.equal("the user's own preload stays, behind", seen["preload"], f"{self.place.library}:libm.so.6")
        test_look("beside the user's own preload", seen, 2 * GIB)

    @staticmethod
    def executable(seen):
        test_look("with a Python of the user's", seen[0], 2 * GIB)
        tap.ok("it is the user's Python", seen[1], seen)

    @staticmethod
    def bad(seen):
        for size, error in seen.items():
            tap.ok(f"gpu_memory {size!r}: refused, with what is accepted", error and error[0] == "RuntimeEnvSetupError"
                   and "runtime_env field gpu_memory" in error[1] and "accepted" in error[1], error)

    @staticmethod
    def missing(seen):
        tap.ok("no library: the task does not run", seen and seen[0] == "RuntimeEnvSetupError" and "cannot be read" in seen[1], seen)

    def unnamed(self, _):
        seen = self.see("unnamed", RAY_RUNTIME_ENV_HOOK="gpucache.ray.limit_by_num_gpus")
        if seen is not None:
            test_look("a program that names no limit, num_gpus=0.25", seen[0], DEVICE // 4)
            test_look("a program that names no limit, num_gpus=1", seen[1], DEVICE)
        plain = self.see("unnamed")
        tap.equal("without the hook: no library", plain and [one["figures"] for one in plain], [None, None])


def test_ray(place, words):
    names = [name for name in vars(Scenes) if not name.startswith("_") and name != "see"]
    names = [name for name in names if not words or any(word in name for word in words)]
    if not names:
        return
    ray = place.venv / "bin/ray"
    done = place.run(ray, "start", "--head", "--num-gpus=1", "--num-cpus=4", "--include-dashboard=false", "--port=0",
                     f"--temp-dir={place.folder}/r", "--object-store-memory=100000000", "--disable-usage-stats",
                     RAY_RUNTIME_ENV_PLUGINS=PLUGINS)
    if not tap.ok("ray start, with the plugin", done.returncode == 0, shown(done)):
        return
    scenes = Scenes(place)
    # `auto` would find the nodes of others, too.
    place.environment["RAY_ADDRESS"] = next(place.folder.glob("r/ray_current_cluster")).read_text(encoding="utf-8").strip()
    try:
        for name in names:
            seen = scenes.see(name) if name != "unnamed" else True
            if seen is not None:
                getattr(scenes, name)(seen)
    finally:
        stop_ray(place)


def stop_ray(place):
    """`ray stop` would end the nodes of others, too: this one's processes name its folder."""
    for _ in range(2):
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if f"{place.folder}/r/".encode() in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)
            except (OSError, ValueError):
                pass
        time.sleep(0.5)


def dask_setting(place, **changed):
    """examples/deploy/dask.yaml, with the wheel's library, in a folder for DASK_CONFIG."""
    text = (ROOT / "examples/deploy/dask.yaml").read_text(encoding="utf-8")
    text = text.replace("/usr/lib/x86_64-linux-gnu/libgpucache.so", place.library)
    for name, value in changed.items():
        text = "".join(f"      {name}: {value}\n" if line.strip().startswith(f"{name}:") else line
                       for line in text.splitlines(keepends=True))
    folder = pathlib.Path(tempfile.mkdtemp(dir=place.folder, prefix="dask."))
    (folder / "gpucache.yaml").write_text(text, encoding="utf-8")
    return folder


def see_dask(place, config):
    """What the workers of a scheduler's two workers saw."""
    address = f"{config}/scheduler.json"
    kept = [place.start(place.venv / "bin/dask", "scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", address,
                        "--host", "127.0.0.1", DASK_CONFIG=str(config))]
    try:
        deadline = time.monotonic() + 60
        while not os.path.exists(address) and time.monotonic() < deadline:
            time.sleep(0.1)
        address = json.loads(pathlib.Path(address).read_text(encoding="utf-8"))["address"]
        kept.append(place.start(place.venv / "bin/dask", "worker", address, "--nworkers", "2", "--nthreads", "1", "--no-dashboard",
                                DASK_CONFIG=str(config)))
        done = place.run(place.venv / "bin/python", HERE / "dask_program.py", address, "2")
        try:
            return json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            log = (place.folder / "worker.log").read_text(encoding="utf-8")
            tap.ok("Dask's client", False, f"{shown(done)}\n{log[-3000:]}")
            return None
    finally:
        for process in kept:
            os.killpg(process.pid, signal.SIGTERM)
        for process in kept:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def test_dask(place, words):
    if words and not any(word in "dask" for word in words):
        return
    seen = see_dask(place, dask_setting(place))
    if seen is not None:
        test_look("Dask: a worker", seen["one"], 4 * GIB)
        held = sum(one["figures"][1] for one in seen["both"])
        tap.ok(f"Dask: two workers of 4 GiB, 6 GiB together: held {held}", 6 * GIB - 4 * MIB <= held <= 6 * GIB
               and {one["group"] for one in seen["both"]} == {"dask"}, seen)
    seen = see_dask(place, dask_setting(place, GPUCACHE_LIMIT="4XB"))
    if seen is not None:
        tap.equal("Dask: a bad size: no worker has a device", [one["cuInit"] for one in seen["both"]], [1, 1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    for name in ("--build", "--wheel"):
        parser.add_argument(name, type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    # Ray's sockets lie in the folder: their paths may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="gpc-ray.", dir="/tmp", ignore_cleanup_errors=True) as folder:
        place = Place(options, folder)
        reason = set_up(options, place)
        if reason:
            tap.skip("Ray and Dask", reason)
        else:
            test_ray(place, options.words)
            test_dask(place, options.words)
            for path in pathlib.Path("/dev/shm").glob(f"simcuda-*-{place.environment['SIMCUDA_SHARED']}"):
                path.unlink()
    return tap.close()


if __name__ == "__main__":
    sys.exit(main())
