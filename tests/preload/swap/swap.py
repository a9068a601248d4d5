"""Common to tests of members that take turns in device memory: a world of its own (one simulated device, one ledger, one
group), its members (progs/swap_member.c), and what the device itself shows (progs/swap_observer.c)."""
import atexit
import contextlib
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from live import BUILD, CONTEXT, MIB, PATIENCE, TOOL, equal, finish, ok

PROGS = os.path.join(BUILD, "tests/preload")
# Each way, a second, of the simulated device.
LINK = os.environ.get("SWAP_LINK", "25GB")
LINK_BYTES = {"KB": 10**3, "MB": 10**6, "GB": 10**9}[LINK[-2:].upper()] * float(LINK[:-2])
SPARE = 256 * MIB  # the device has more than the group may hold, so that too much would be seen, not refused
ROUNDING = 16 * MIB  # of a member: pages that its small blocks and the ends of large ones share
GROUP = "turns"
KERNEL_US = 20000
SPARSE = "chunk=2097152"  # little of it is written: this machine's own memory is slower than the link that is simulated
IDLE_S = 0.1  # until a member is seen to be without work
REFUSED = re.compile(r"gpucache: device \d+: [0-9.]+ \w+ refused: ")  # the library's line about a request


def has_link():
    """Whether the simulated device models its link: else times say nothing about an exchange."""
    with open(os.path.join(BUILD, "simcuda/libcuda.so.1"), "rb") as stream:
        return b"SIMCUDA_LINK" in stream.read()


class Late(Exception):
    """Something did not come in time."""


class World:
    """A device whose group may hold `usable` bytes beside the contexts and the roundings of so many members."""

    def __init__(self, usable, members, **settings):
        self.folder = tempfile.mkdtemp(prefix="gpucache-swap.")
        self.name = os.path.basename(self.folder)
        self.limit = usable + members * (CONTEXT * MIB + ROUNDING)
        self.settings = {"GPUCACHE_OVERCOMMIT": "swap", **settings}
        self.members = []
        atexit.register(self.forget)
        self.observer = subprocess.Popen(  # it ends with its input
            [os.path.join(PROGS, "swap_observer")], env=self.plain_environment(), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        self.look(f"bound {self.limit}")

    def plain_environment(self):
        """Of programs without the library."""
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": os.path.join(BUILD, "simcuda"),
                       "LC_ALL": "C.UTF-8", "SIMCUDA_SHARED": self.name, "SIMCUDA_MEMORY": str(self.limit + SPARE),
                       "GPUCACHE_LEDGER": os.path.join(self.folder, "ledger")}
        if has_link():
            environment["SIMCUDA_LINK"] = LINK
        return environment

    def environment(self, **settings):
        """Of a member."""
        return {**self.plain_environment(), "LD_PRELOAD": os.path.join(BUILD, "libgpucache.so"), "GPUCACHE_GROUP": GROUP,
                "GPUCACHE_GROUP_LIMIT": str(self.limit), "GPUCACHE_REPORT": "none", **self.settings, **settings}

    def look(self, line="look"):
        """What the device shows: used now, the most since the last look, samples since then, samples above the bound."""
        self.observer.stdin.write(line + "\n")
        self.observer.stdin.flush()
        words = self.observer.stdout.readline().split()
        return dict(zip(words[::2], map(int, words[1::2])))

    def add(self, held_bytes, *options, **settings):
        """A member; it may not be ready yet. Only the first loads a kernel: the memory of a module is known after it is
        taken, so where the group has no room it is above the limit for a moment, turns or not."""
        options += () if not self.members else ("module=0",)
        member = Member(self, held_bytes, options, settings)
        self.members.append(member)
        return member

    def tool(self, *arguments, timeout=2 * PATIENCE):
        """The tool, as a user calls it."""
        return subprocess.run([TOOL, *arguments], env=self.plain_environment(), capture_output=True, text=True,
                              timeout=timeout, check=False)

    def turn(self, member):
        """What top shows of its turns."""
        shown = json.loads(self.tool("top", "--once", "--json").stdout)
        return next(row["turn"] for row in shown["processes"] if row["pid"] == member.pid)

    def device_row(self, member):
        """What top shows of its memory on the device."""
        shown = json.loads(self.tool("top", "--once", "--json").stdout)
        return next(row["devices"][0] for row in shown["processes"] if row["pid"] == member.pid)

    def end(self):
        """All members end; whatever they held must be free. What is wrong, in words."""
        problems = []
        for member in self.members:
            problems += member.end()
        used = self.look()["used"]
        until = time.monotonic() + 5  # of a process that was killed it goes a moment later
        while used != 0 and time.monotonic() < until:
            time.sleep(0.05)
            used = self.look()["used"]
        if used != 0:
            problems.append(f"the device still has {used} bytes in use")
        state = subprocess.run([os.path.join(PROGS, "group_state"), GROUP], env=self.plain_environment(),
                               capture_output=True, text=True, check=False)
        if not state.stdout.startswith("members 0 held 0 "):
            problems.append(f"the group's account: {state.stdout or state.stderr}")
        self.observer.stdin.close()
        self.observer.wait(PATIENCE)
        self.forget()
        return problems

    def finish(self, name):
        """Ends it; what must hold of every world."""
        seen = self.look()
        equal(f"{name}: never above the limit, by the device's own account", seen["above"], 0)
        ok(f"{name}: that was looked at", seen["samples"] > 50, seen)
        equal(f"{name}: all is given back, nobody complains", self.end(), [])

    def forget(self):
        """Removes what is left of it."""
        for member in self.members:
            with contextlib.suppress(OSError):
                member.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(f"/dev/shm/simcuda-{os.getuid()}-{self.name}")


class Member:
    """A member, and what it has printed."""

    def __init__(self, world, held_bytes, options, settings):
        self.requests = []  # (begin in us, took us, first us)
        self.held = 0  # as it last said
        self.fork_count = self.parent_until = 0  # children so far, and until when one may live
        self.lines = queue.Queue()
        self.last = {}
        self.process = subprocess.Popen(
            [os.path.join(PROGS, "swap_member"), str(int(held_bytes)), *options], env=world.environment(**settings),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.errors = []
        self.readers = [threading.Thread(target=self.read), threading.Thread(target=self.read_errors)]
        for reader in self.readers:
            reader.daemon = True
            reader.start()

    def read(self):
        """Its output, as it comes."""
        for line in self.process.stdout:
            words = line.split()
            if words and words[0] == "request":
                self.requests.append((int(words[3]), int(words[5]), int(words[7])))
            elif words and words[0] == "forked":
                self.fork_count += 1
                self.parent_until = max(self.parent_until, time.monotonic() + int(words[1]) / 1000)
            elif words and words[0] == "end":
                self.last = dict(zip(words[1::2], map(int, words[2::2])))
            else:
                if words[2:3] == ["held"]:
                    self.held = int(words[3])
                self.lines.put(words)
        self.lines.put(None)

    def read_errors(self):
        """What it complains of."""
        for line in self.process.stderr:
            self.errors.append(line.strip())

    def tell(self, line):
        """A command. A member that has ended does not hear it."""
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def hears(self, word, seconds=PATIENCE):
        """Waits for a line that begins so."""
        until = time.monotonic() + seconds
        while True:
            try:
                words = self.lines.get(timeout=max(until - time.monotonic(), 0.001))
            except queue.Empty:
                raise Late(f"{self.pid}: no '{word}' within {seconds:.0f} s; {self.errors}") from None
            if words is None:
                raise Late(f"{self.pid}: ended with {self.process.wait()}; {self.errors}")
            if words[0] == word:
                return words

    def ready(self, seconds=PATIENCE):
        """Waits until it has its memory."""
        self.hears("ready", seconds)
        return self

    def ask(self, count=1, seconds=PATIENCE):
        """So many requests; their rows."""
        before = len(self.requests)
        self.tell(f"requests {count}")
        self.hears("done", seconds)
        return self.requests[before:]

    def end(self):
        """Ends it. What is wrong, in words."""
        if self.process.poll() is None:
            self.tell("end")
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                return [f"{self.pid} does not end"]
        for reader in self.readers:
            reader.join(PATIENCE)
        problems = [f"{self.pid}: exit status {self.process.returncode}"] if self.process.returncode else []
        return problems + self.errors


def span_us(rows):
    """From the beginning of the first request to the end of the last one."""
    return rows[-1][0] + rows[-1][1] - rows[0][0]


def member_options(seed, *more):
    """A share of the blocks is touched by each request, so that it is the kernel that takes the time."""
    return (f"seed={seed}", f"kernel_us={KERNEL_US}", "touch=25", SPARSE, *more)


def run_checks(checks, names):
    """The checks of those names, without names all; the exit status of the script."""
    for name in names or checks:
        try:
            checks[name]()
        except Late as problem:
            ok(f"{name}: nobody waits for ever, and all get their memory", False, str(problem))
    return finish()
