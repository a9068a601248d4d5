#!/usr/bin/env python3
"""Members of a group that together need far more than the group may hold take turns, and everything happens to them at
random: limits change, members are killed, stopped and continued, they fork, exec, end well and end in the middle.

usage: swap_storm.py [--seconds N] [--members N] [--usable MIB] [--seed N] [--whole PERCENT] [--roomy]

Every member checks what it reads (tests/preload/swap/progs/swap_member.c). The device's own account is sampled all the time
and must never be above the limit in force; a limit that was lowered is in force SETTLE_S later. In the end every member
that lives must answer within ANSWER_S, and when all have ended the accounts must be zero. Prints a line a fault, and what
was done; exit status 1 if there was a fault. --seed draws the same members and events, at times that differ.
--roomy: all fit, which tries the storm itself."""
import argparse
import collections
import os
import random
import re
import signal
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "tests/preload/swap"))
from swap import GROUP, REFUSED, Late, World
sys.path.append(os.path.join(ROOT, "tests/preload"))
from live import MIB

NEED = 2.4  # of what the group may hold
ANSWER_S = 30  # for a request when all is quiet again; each of the others may have its turn before
ENDS = ("kill", "exec", "end", "quit")
CHILD_ENDS_S = 0.5  # after its time, on a busy machine
# Of a request that stopped members leave no room for: the reason, and the line of a refused request.
REFUSAL = re.compile("no process of the group can give up|" + REFUSED.pattern)
SETTLE_S = 15
PATIENCE = 5  # times the time asked for
READY_S = 45  # until a new member has its memory: all others may have their turns before
LOWEST = 0.7  # of the limit; the largest member fits alone
LARGEST = 0.6  # member, of the same
PACE_S = 0.15  # between two events
KILLED = -signal.SIGKILL


class Storm:
    """One run."""

    def __init__(self, options):
        self.options = options
        self.chance = random.Random(options.seed)
        self.usable = options.usable * MIB * (options.members if options.roomy else 1)
        self.world = World(self.usable, options.members + 1)  # one more: a killed one's context goes a moment later
        self.contexts = self.world.limit - self.usable
        self.members, self.counts, self.faults = [], collections.Counter(), []
        self.is_calm = False  # no member is started any more
        self.events = []  # (when, name, pid)
        self.limits = [(0, self.world.limit)]  # (when it was set, the limit): all that may be in force

    def fault(self, text):
        """Something that does not hold."""
        self.faults.append(text)
        print(f"FAULT {text}", flush=True)

    def start(self):
        """A new member, of random size and habits."""
        size = self.options.usable * MIB * min(self.chance.uniform(0.2, 2) * NEED / self.options.members, LARGEST)
        whole = self.chance.random() * 100 < self.options.whole
        tenants = self.chance.choice([0, 0, 0, 2, 3])
        member = self.world.add(
            size / (4 if whole else 1) / max(tenants, 1) * (1.3 if tenants else 1), f"tenants={tenants}", f"seed={self.chance.randrange(1 << 30)}", "refused=1",
            f"kernel_us={self.chance.choice([0, 500, 3000, 20000, 200000])}", f"touch={self.chance.choice([5, 30, 100])}",
            f"churn={self.chance.choice([0, 0, 5, 30])}", f"block={self.chance.choice([1, 16, 128]) * MIB}",
            f"whole={int(whole)}", f"patience_s={READY_S}", f"weights={self.chance.choice([0, 0, 40, 90])}",
            GPUCACHE_PRIORITY=str(self.chance.choice([0, 0, 0, 5])), GPUCACHE_QUANTUM=str(self.chance.choice([50, 200, 1000])))
        member.expected = {0}  # exit statuses
        member.is_ending = False
        member.stopped_until = None
        member.forks_told = 0
        member.tell(self.habit())
        self.counts["tenants"] += tenants
        self.members.append(member)
        self.events.append((time.monotonic(), "start", member.pid))
        self.counts["started"] += 1

    def habit(self):
        """What a member does until it is told something else."""
        return self.chance.choice(["busy", "idle", "random 5000", "random 50000", "random 400000"])

    # ---- events ----

    def kill(self, member):
        """Wherever it is."""
        member.expected = {KILLED, 0} if member.is_ending else {KILLED}
        member.process.kill()

    def stop(self, member):
        """It goes on later."""
        member.process.send_signal(signal.SIGSTOP)
        member.stopped_until = time.monotonic() + self.chance.choice([0.05, 0.3, 1, 4])

    def tell(self, *lines):
        """An event that consists of commands."""
        def event(member):
            for line in lines:
                member.tell(line)
        return event

    def fork(self, member):
        """The child keeps its parent's device memory, as the driver sees it, even where the parent has ended: a member that
        has a child does not end, nor one that has yet to fork."""
        member.forks_told += 1
        member.tell(f"fork {self.chance.choice([1, 100, 3000])}")
        member.tell(self.habit())

    def limit(self, _):
        """Of the group. A lower one takes effect when those that have too much have given it up."""
        wanted = int(self.usable * self.chance.uniform(LOWEST, 1)) + self.contexts
        self.limits.append((time.monotonic(), wanted))
        self.bound()
        done = self.world.tool("limit", GROUP, str(wanted), "--timeout", "20")
        if done.returncode != 0:
            self.counts["limit refused"] += 1
        self.world.limit, self.limits[-1] = wanted, (time.monotonic(), wanted)

    def bound(self):
        """Until a limit has settled, those before it may be in force."""
        while len(self.limits) > 1 and time.monotonic() >= self.limits[1][0] + SETTLE_S:
            del self.limits[0]
        self.world.look(f"bound {max(limit for _, limit in self.limits)}")

    def trim(self, _):
        """Idle memory of all of them goes."""
        self.world.tool("trim", GROUP, "--timeout", "20")

    def top(self, _):
        """It must work at any time."""
        done = self.world.tool("top", "--once", "--json")
        if done.returncode != 0:
            self.fault(f"top: {done.stderr}")

    def act(self):
        """One event."""
        now = time.monotonic()
        going = [member for member in self.members if member.stopped_until is None]
        weights = {"habit": 30, "kill": 5, "stop": 10, "fork": 5, "exec": 3, "end": 3, "quit": 3, "limit": 6, "trim": 2,
                   "top": 3}
        name = self.chance.choices(list(weights), list(weights.values()))[0]
        events = {"habit": lambda member: member.tell(self.habit()), "kill": self.kill, "stop": self.stop,
                  "fork": self.fork,
                  "exec": self.tell("exec", self.habit()), "end": self.tell("end"), "quit": self.tell("quit"),
                  "limit": self.limit, "trim": self.trim, "top": self.top}
        if going:
            member = self.chance.choice(going)
            if name in ENDS and (member.fork_count < member.forks_told or now < member.parent_until + CHILD_ENDS_S):
                return
            self.events.append((time.monotonic(), name, member.pid))
            member.is_ending |= name in ("end", "quit")
            events[name](member)
            self.counts[name] += 1

    # ---- what must hold ----

    def attend(self):
        """Continues those whose time has come, buries the dead, starts others; looks at the device."""
        now = time.monotonic()
        for member in list(self.members):
            if member.stopped_until is not None and now >= member.stopped_until:
                member.process.send_signal(signal.SIGCONT)
                member.stopped_until = None
            if member.process.poll() is not None:
                self.bury(member)
        self.counts["held MiB"] = max(self.counts["held MiB"], sum(member.held for member in self.members) // MIB)
        while len(self.members) < self.options.members and not self.is_calm:
            self.start()
        if len(self.limits) > 1:
            self.bound()

    def is_crowded(self):
        """Whether the members have held more than fits, so that they took turns."""
        return self.counts["held MiB"] * MIB > self.usable or self.options.roomy

    def bury(self, member):
        """It has ended: as it was told to?"""
        self.members.remove(member)
        self.world.members.remove(member)
        problems = member.end()
        self.counts["requests"] += len(member.requests)
        self.counts["refused"] += member.last.get("refused", 0)
        if member.process.returncode not in member.expected:
            self.fault(f"{member.pid} ended: {problems}")

    def calm(self):
        """All go on, have nothing to do, and answer."""
        self.is_calm = True
        for member in self.members:
            member.process.send_signal(signal.SIGCONT)
            member.stopped_until = None
            member.tell("idle")
        self.counts["alive at the end"] = len(self.members)
        for member in list(self.members):
            try:
                # A member that was just started has not got its memory yet; one that was told to end, ends.
                begin = time.monotonic()
                member.tell("requests 1")
                member.hears("done", ANSWER_S + (READY_S if not member.requests else 0))
                self.counts["slowest answer ms"] = max(self.counts["slowest answer ms"],
                                                       int(1000 * (time.monotonic() - begin)))
            except Late as problem:
                if member.process.poll() is None:
                    self.fault(f"left waiting: {problem}")

        if not self.is_crowded():
            self.fault(f"the members never held more than {self.counts['held MiB']} MiB, which fit: nobody had to take turns")

    def run(self):
        """From the first member to the last."""
        begin = time.monotonic()
        try:
            # On a busy machine it takes longer until members hold more than fits.
            while time.monotonic() < begin + self.options.seconds * (1 if self.is_crowded() else PATIENCE):
                self.attend()
                self.act()
                time.sleep(self.chance.uniform(0, 2 * PACE_S))
            self.attend()
            self.calm()
            self.attend()
        finally:
            for member in self.members:
                member.process.send_signal(signal.SIGCONT)
        for member in self.members:
            self.counts["requests"] += len(member.requests)
        seen = self.world.look()
        self.counts.update({"samples": seen["samples"], "most MiB": seen["most"] // MIB})
        if seen["above"] != 0:
            at = seen["at_us"] / 1e6
            before = [f"{name} of {pid} {at - when:.2f} s before" for when, name, pid in self.events if at - 3 < when < at]
            self.fault(f"the device held more than the limit in {seen['above']} samples, by {seen['excess']} bytes at most; "
                       + "; ".join(before))
        for problem in self.world.end():
            if REFUSAL.search(problem):
                self.counts["refusals explained"] += 1
            else:
                self.fault(problem)
        print(" ".join(f"{name.replace(' ', '_')}={count}" for name, count in sorted(self.counts.items())))
        print(f"seed {self.options.seed}: {self.counts['requests']} requests, {len(self.faults)} faults", flush=True)


def main():
    """Reads the arguments, storms, reports."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--usable", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--whole", type=float, default=30)
    parser.add_argument("--roomy", action="store_true")
    storm = Storm(parser.parse_args())
    storm.run()
    return 1 if storm.faults or storm.counts["requests"] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
