"""Common to tests of running programs: a program on the simulated device that obeys commands, the tool, TAP."""
import atexit
import json
import os
import subprocess
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD_DIR", os.path.join(ROOT, "build"))
TOOL = os.path.join(BUILD, "gpucache")
MIB = 1 << 20
OUT_OF_MEMORY = "2"
PATIENCE = 60  # seconds for what is sure to come, on a machine that is busy with other things
CONTEXT = 64  # MiB of the simulated device's contexts, counted where there is a limit from the start

counts = {"all": 0, "failed": 0}
lock = threading.Lock()


def ok(name, good, shown=""):
    """One test, of any thread."""
    with lock:
        counts["all"] += 1
        if not good:
            counts["failed"] += 1
            for line in str(shown).splitlines():
                print(f"# {line}")
        print(f"{'ok' if good else 'not ok'} {counts['all']} - {name}", flush=True)


def equal(name, got, want):
    """One test of two values."""
    ok(name, got == want, f"got: {got}\nwant: {want}")


class Client:
    """tests/preload/progs/live_client.c under the library."""

    def __init__(self, base, name, **settings):
        self.report = os.path.join(base, name + ".json")
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": os.path.join(BUILD, "simcuda"),
                       "LD_PRELOAD": os.path.join(BUILD, "libgpucache.so"), "GPUCACHE_REPORT": self.report,
                       "GPUCACHE_LEDGER": os.path.join(base, "ledger"), "GPUCACHE_TENANT": name,
                       "SIMCUDA_MEMORY": "4GiB"}
        environment.update(settings)
        # pylint: disable-next=consider-using-with # it ends at a command
        self.process = subprocess.Popen([os.path.join(BUILD, "tests/preload/live_client")], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        self.pid = str(self.process.pid)
        assert self.process.stdout.readline() == "ready\n"

    def command(self, line):
        """One command; the answer."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        """Ends it; its report's device."""
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        self.process.stdout.close()
        with open(self.report, encoding="utf-8") as stream:
            return json.load(stream)["devices"][0]


def start_tool(base, *arguments):
    """The tool's process. It waits for responses, unless the arguments say how long."""
    if arguments[0] in ("limit", "trim", "pause", "resume") and "--timeout" not in arguments:
        arguments += ("--timeout", str(PATIENCE))
    environment = {"PATH": os.environ["PATH"], "GPUCACHE_LEDGER": os.path.join(base, "ledger"), "LC_ALL": "C.UTF-8"}
    return subprocess.Popen([TOOL, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def end_tool(process):
    """Exit status, standard output, standard error."""
    with process:
        out, error = process.communicate(timeout=2 * PATIENCE)
    return process.returncode, out, error


def tool(base, *arguments):
    """The same, all at once."""
    return end_tool(start_tool(base, *arguments))


def finish():
    """The plan; the exit status."""
    print(f"1..{counts['all']}")
    return 1 if counts["failed"] else 0
