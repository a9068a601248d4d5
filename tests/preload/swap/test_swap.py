#!/usr/bin/env python3
"""GPUCACHE_OVERCOMMIT=swap: programs that do not fit together take turns in one device's memory by themselves.
Times are compared with those of the same program alone, in the same run; test_swap_contents.py has all that needs no time.
Members wait for the device nearly all the time, so that the worlds of all checks but the first answer's run at once; a ratio
that does not hold then is measured again by itself.

usage: test_swap.py [--usable MIB] [--seconds N] [--roomy] [CHECK…]

--usable: what the group may hold beside contexts (1024). --seconds: about how long a program is busy when alone (4).
--roomy: all members fit, which tries the test itself. CHECK: first, idle, two, three, two_tenants, three_tenants.
SWAP_LINK: the link's speed each way (25GB)."""
# timeout: 600
# alone: it compares times
import argparse
import concurrent.futures
import functools
import os
import statistics
import sys
import time

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
from swap import IDLE_S, KERNEL_US, LINK, LINK_BYTES, SPARSE, Late, World, has_link, member_options, span_us
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from live import MIB, PATIENCE, counts, finish, ok

TRIES = 3  # more, of what compares times: other processes of this machine disturb
BUSY_WITH_IDLE = 1.02
TURNS = 1.10
LINK_SHARE = 0.85
FIRST_ANSWER_US = 10000
ANSWERS = 7

options = argparse.Namespace(usable=1024, seconds=4.0, roomy=False)


def usable():
    """Bytes."""
    return options.usable * MIB


def new_world(room, members, **settings):
    """A world whose members do not fit together."""
    return World(room * (max(members, 1) if options.roomy else 1), members, **settings)


def request_count():
    """For about so many seconds."""
    return int(options.seconds * 1e6 / (KERNEL_US * 1.05))


class Ratio:
    """A ratio of times and its bound; `measure` measures the ratio, and what it finds wrong fails at once."""

    def __init__(self, name, bound, measure):
        self.name, self.bound, self.measure = name, bound, measure
        self.seen = []

    def take(self):
        """Measures it once more; a world where something came too late has failed."""
        try:
            self.seen.append(self.measure())
        except Late as problem:
            ok(f"{self.name}: nobody waits for ever, and all get their memory", False, str(problem))

    def judge(self):
        """Measures it again where it does not hold."""
        if not self.seen:
            return
        if not has_link():
            counts["all"] += 1
            print(f"ok {counts['all']} - {self.name} # SKIP the simulated device does not model its link (SIMCUDA_LINK)")
            return
        while self.seen[-1] > self.bound and len(self.seen) <= TRIES:
            self.take()
        print(f"# {self.name}: {', '.join(f'{ratio:.4f}' for ratio in self.seen)}, bound {self.bound}")
        ok(f"{self.name}: at most {self.bound}", self.seen[-1] <= self.bound, self.seen)


@functools.cache
def alone_us(*member):
    """A member with these options, alone in its group: measured once for all checks."""
    world = new_world(usable(), 1)
    member = world.add(0.6 * usable(), *member).ready()
    member.ask(2)
    took = span_us(member.ask(request_count(), 20 * options.seconds + 60))
    world.finish("alone")
    return took


def check_busy_and_idle():
    """One works, three have nothing to do."""
    def measure():
        alone = alone_us(*member_options(1))
        world = new_world(usable(), 4)
        busy = world.add(0.6 * usable(), *member_options(1)).ready()
        idle = [world.add(0.6 * usable(), *member_options(seed)).ready() for seed in (2, 3, 4)]
        for member in (busy, *idle):
            member.ask(1)
        busy.ask(2)  # as alone: its memory is back
        took = span_us(busy.ask(request_count(), 20 * options.seconds + 60))
        for member in idle:
            member.ask(1)
        world.finish("busy and idle")
        return took / alone
    return Ratio("one busy and three idle members, 2.4 devices together, by the time alone", BUSY_WITH_IDLE, measure)


def check_turns(count):
    """All work, all the time."""
    def measure():
        alone = sum(alone_us(*member_options(seed)) for seed in range(count))
        world = new_world(usable(), count)
        members = [world.add(0.6 * usable(), *member_options(seed)).ready() for seed in range(count)]
        for member in members:
            member.tell(f"requests {request_count()}")
        for member in members:
            member.hears("done", 30 * options.seconds * count + 60)
        rows = [row for member in members for row in member.requests]
        took = max(row[0] + row[1] for row in rows) - min(row[0] for row in rows)
        world.finish(f"{count} busy")
        return took / alone
    return Ratio(f"{count} busy members of 0.6 devices, by the time one after the other", TURNS, measure)


def check_first_answer():
    """The answer of a member that has been away."""
    def measure():
        world = new_world(usable(), 3)
        first, second, third = (world.add(0.5 * usable(), f"seed={seed}", "block=268435456", SPARSE).ready() for seed in (1, 2, 3))
        away_us, resident_us = [], []
        for _ in range(ANSWERS):
            until = time.monotonic() + PATIENCE
            while world.turn(first)["state"] != "away" and time.monotonic() < until:
                for member in (second, third):
                    member.ask(1)
                    time.sleep(IDLE_S)
            away_us.append(first.ask(1)[0][2])
            resident_us.append(first.ask(1)[0][2])
        world.finish("first answer")
        exchange_us = statistics.median(away_us) - statistics.median(resident_us)
        print(f"# first answers after {away_us} us, resident {resident_us} us: {0.5 * usable() / exchange_us / 1e3:.1f} GB/s "
              f"of {LINK}")
        return exchange_us / (0.5 * usable() / (LINK_SHARE * LINK_BYTES) * 1e6 + FIRST_ANSWER_US)
    return Ratio(f"first answer, by the time at {LINK_SHARE} of the link and {FIRST_ANSWER_US / 1000:.0f} ms", 1, measure)


def tenant_options(count):
    """A member whose threads are so many tenants."""
    return member_options(1, f"tenants={count}")


def check_tenants(count):
    """Tenants of one process, all busy, that do not fit together."""
    def measure():
        alone = alone_us(*tenant_options(1))
        world = new_world(usable(), 1)
        member = world.add(0.6 * usable(), *tenant_options(count)).ready()
        rows = member.ask(request_count(), 30 * options.seconds * count + 60)
        ok(f"{count} tenants: they take turns", options.roomy or world.turn(member)["exchange_count"] >= count, world.turn(member))
        took = max(row[0] + row[1] for row in rows) - min(row[0] for row in rows)
        world.finish(f"{count} tenants")
        return took / (count * alone)
    return Ratio(f"{count} busy tenants of 0.6 devices, by the time one after the other", TURNS, measure)


CHECKS = {"first": check_first_answer, "idle": check_busy_and_idle,
          "two": lambda: check_turns(2), "three": lambda: check_turns(3),
          "two_tenants": lambda: check_tenants(2), "three_tenants": lambda: check_tenants(3)}


def run_ratios(names):
    """The first answer takes milliseconds: nothing runs beside it, nor beside what is measured again."""
    ratios = [CHECKS[name]() for name in names if name != "first"]
    if "first" in names:
        first = check_first_answer()
        first.take()
        first.judge()
    with concurrent.futures.ThreadPoolExecutor(len(CHECKS)) as pool:
        if ratios:
            list(pool.map(lambda member: alone_us(*member), [tenant_options(1), *map(member_options, range(3))]))
        list(pool.map(Ratio.take, ratios))
    for ratio in ratios:
        ratio.judge()
    return finish()


def main():
    """All of it; ends with 1 if anything failed."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--usable", type=int, default=options.usable)
    parser.add_argument("--seconds", type=float, default=options.seconds)
    parser.add_argument("--roomy", action="store_true")
    parser.add_argument("checks", nargs="*", metavar="CHECK")
    parser.parse_args(namespace=options)
    return run_ratios(options.checks or CHECKS)


if __name__ == "__main__":
    sys.exit(main())
