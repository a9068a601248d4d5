"""Runs the test files of a suite by pytest, a process for each; a crash or a hang costs one test.

A test that ends its process is `crashed`, one that runs longer than the limit is `timeout`, and the file's other tests
run in a new process. Two results of a file have no test: `FILE::(import)`, and `FILE::(exit)`, how the process ended
behind its last test.
"""
import json
import os
import pathlib
import re
import selectors
import signal
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESTARTS = 40  # of one file
# A line of the library's about a request that had no room, as some programs' have.
REFUSED = re.compile(r"^gpucache: device \d+: [0-9.]+ \w+ refused: .*\n", re.MULTILINE)
OUTPUT_BYTES, OUTPUT_LINES = 1 << 22, 200  # of a program that are compared

SETTINGS = {"none": None, "off": {"GPUCACHE_MODE": "off"}, "track": {"GPUCACHE_MODE": "track"}}
for _backend in ("vmm", "driver"):
    for _reuse in ("fence", "sync"):
        SETTINGS[f"cache-{_backend}" + ("-sync" if _reuse == "sync" else "")] = {
            "GPUCACHE_MODE": "cache", "GPUCACHE_BACKEND": _backend, "GPUCACHE_REUSE": _reuse}


def environment_of(suite, setting, build, folder):
    """The variables of a process: the simulated device and, in all settings but `none`, the library."""
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("GPUCACHE_", "SIMCUDA_", "LD_", "PYTHON", "SUITES_", "CUDA_MODULE"))}
    environment.update(
        LD_LIBRARY_PATH=os.pathsep.join([str(build / "simcuda"), *map(str, suite.libraries)]), PYTHONHASHSEED="0",
        PYTHONPATH=str(HERE), PYTHONDONTWRITEBYTECODE="1", SIMCUDA_DEVICES="2", SIMCUDA_MEMORY="8GiB", HOME=str(suite.home),
        XDG_CACHE_HOME=str(suite.home / "cache"), TMPDIR=str(folder))
    environment.update(suite.environment)
    if SETTINGS[setting] is not None:
        environment.update(SETTINGS[setting], LD_PRELOAD=str(build / "libgpucache.so"), GPUCACHE_REPORT="none",
                           GPUCACHE_LEDGER=str(folder / "ledger"))
    return environment


class Process:
    """One run of pytest over one file, watched."""

    def __init__(self, suite, target, environment, folder, limit):
        self.record = folder / "record"
        self.record.write_text("")
        self.output = open(folder / "output", "w+", encoding="utf-8", errors="replace")  # pylint: disable=consider-using-with
        self.limit, self.timed_out, self.read, self.running, self.lines = limit, False, 0, None, []
        self.process = subprocess.Popen(
            [suite.venv / "bin/pytest", "-p", "record", "-p", "no:cacheprovider", "-q", "--tb=short", "--rootdir",
             str(suite.folder), f"--basetemp={folder / 'pytest'}", *suite.arguments, target], cwd=suite.folder,
            env=dict(environment, SUITES_RECORD=str(self.record)), stdin=subprocess.DEVNULL, stdout=self.output,
            stderr=subprocess.STDOUT, start_new_session=True)

    def _poll_record(self):
        with open(self.record, encoding="utf-8") as stream:
            stream.seek(self.read)
            while True:
                line = stream.readline()
                if not line.endswith("\n"):
                    return
                self.read = stream.tell()
                self.lines.append(json.loads(line))
                self.since = time.monotonic()
                self.running = self.lines[-1].get("start")

    def wait(self):
        """Until it has ended; the limit is a test's, and an import's and an end's."""
        self.since, ended = time.monotonic(), None
        while ended is None:
            try:
                ended = self.process.wait(0.2)
            except subprocess.TimeoutExpired:
                pass
            self._poll_record()
            if ended is None and time.monotonic() - self.since > self.limit:
                self.timed_out = True
                self._kill()
                ended = self.process.wait()
        self._kill()  # children that it left
        self.output.seek(0)
        self.text = self.output.read()
        self.output.close()
        return ended

    def _kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def run_file(suite, setting, name, build, limit, only=None):
    """{name: (outcome, message)} of the tests of one file or module, of those in `only` where it is given."""
    results = {}
    with tempfile.TemporaryDirectory(prefix="gpucache-suites.") as folder:
        folder = pathlib.Path(folder)
        environment = environment_of(suite, setting, build, folder)
        for _ in range(RESTARTS):
            done = folder / "done"
            done.write_text(json.dumps(sorted(results)))
            environment["SUITES_DONE"] = str(done)
            if only is not None:
                (folder / "only").write_text(json.dumps(sorted(only)))
                environment["SUITES_ONLY"] = str(folder / "only")
            process = Process(suite, name, environment, folder, limit)
            status = process.wait()
            for line in process.lines:
                if "end" in line:
                    results[line["end"]] = (line["outcome"], line["message"])
                elif "collect" in line:
                    results[f"{name}::(import)"] = ("error", line["message"])
            end = f"no end within {limit} s" if process.timed_out else f"exit status {status}: {process.text[-400:]}"
            outcome = "timeout" if process.timed_out else "crashed"
            if process.running is None:
                fine = not process.timed_out and status in (0, 1, 2, 5)
                results[f"{name}::(exit)"] = ("passed", "") if fine else (outcome, end)
                break
            results[process.running] = (outcome, end)
    return results


def plain(message):
    """A message without the numbers that differ from run to run."""
    return re.sub(r"\d[\d.e+-]*", "N", re.sub(r"0x[0-9a-f]+", "N", message))


def output_of(process, limit):
    """What it writes, up to the limits of size and time; then it is killed, with its children."""
    chunks, ends = [], time.monotonic() + limit
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while sum(map(len, chunks)) < OUTPUT_BYTES and selector.select(max(0, ends - time.monotonic())):
            chunks.append(os.read(process.stdout.fileno(), 65536))
            if not chunks[-1]:
                break
    try:
        process.wait(max(0.1, ends - time.monotonic()) if chunks and not chunks[-1] else 0.1)
    except subprocess.TimeoutExpired:
        pass
    is_over = process.poll() is not None
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    status = process.wait()
    return status if is_over else None, b"".join(chunks).decode(errors="replace")


def run_program(suite, setting, name, build, limit):
    """A program without a framework: its exit status, and as the message each line of its output once, without numbers."""
    path = suite.folder / name
    with tempfile.TemporaryDirectory(prefix="gpucache-suites.") as folder:
        with subprocess.Popen([str(path)], cwd=path.parent, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              env=environment_of(suite, setting, build, pathlib.Path(folder)), stderr=subprocess.STDOUT,
                              start_new_session=True) as process:
            status, text = output_of(process, limit)
    if status is None:
        return {name: ("timeout", f"more than {limit} s or {OUTPUT_BYTES} bytes of output")}
    lines = sorted(set(plain(REFUSED.sub("", text)).splitlines()))[:OUTPUT_LINES]  # threads' lines come in any order
    outcome = "crashed" if status < 0 else "failed" if status else "passed"
    return {name: (outcome, "\n".join([f"exit status {status}", *lines]))}
