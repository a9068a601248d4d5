#!/usr/bin/env python3
"""GPUCACHE_OVERCOMMIT=swap: programs that do not fit together take turns in one device's memory by themselves. Every
program checks what it reads; the device's own account never shows more than the group's limit; times are compared with
those of the same program alone, in the same run.

usage: test_swap.py [--usable MIB] [--seconds N] [--roomy] [CHECK…]

--usable: what the group may hold beside contexts (1024). --seconds: about how long a program is busy when alone (4).
--roomy: all members fit, which tries the test itself. CHECK: contents, start, host, weights, first, idle, two, three, tenants, beside,
tenant-contents, tenant-limit.
SWAP_LINK: the link's speed each way (25GB)."""
# timeout: 600
# alone: it compares times
import argparse
import json
import os
import statistics
import sys
import time

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
from swap import GROUP, LINK, LINK_BYTES, REFUSED, Late, World, has_link, span_us
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from live import MIB, PATIENCE, counts, equal, finish, ok

KERNEL_US = 20000
SPARSE = "chunk=2097152"  # little of it is written: this machine's own memory is slower than the link that is simulated
TRIES = 3  # of what compares times: other processes of this machine disturb
BUSY_WITH_IDLE = 1.02
TURNS = 1.10
LINK_SHARE = 0.85
FIRST_ANSWER_US = 10000
ANSWERS = 7
STARTS = 3  # turns of a member that starts
IDLE_S = 0.1  # until a member is seen to be without work

options = argparse.Namespace(usable=1024, seconds=4.0, roomy=False)


def usable():
    """Bytes."""
    return options.usable * MIB


def new_world(room, members, **settings):
    """A world whose members do not fit together."""
    return World(room * (max(members, 1) if options.roomy else 1), members, **settings)


def member_options(seed, *more):
    """A share of the blocks is touched by each request, so that it is the kernel that takes the time."""
    return (f"seed={seed}", f"kernel_us={KERNEL_US}", "touch=25", SPARSE, *more)


def request_count():
    """For about so many seconds."""
    return int(options.seconds * 1e6 / (KERNEL_US * 1.05))


def within(name, bound, measure):
    """A bound on a ratio; measured again if it does not hold. What the measure found wrong fails at once."""
    if not has_link():
        counts["all"] += 1
        print(f"ok {counts['all']} - {name} # SKIP the simulated device does not model its link (SIMCUDA_LINK)")
        measure()
        return
    seen = []
    for _ in range(TRIES):
        seen.append(measure())
        if seen[-1] <= bound:
            break
    print(f"# {name}: {', '.join(f'{ratio:.4f}' for ratio in seen)}, bound {bound}")
    ok(f"{name}: at most {bound}", seen[-1] <= bound, seen)


def finish_world(name, world):
    """What must hold of every world."""
    seen = world.look()
    equal(f"{name}: never above the limit, by the device's own account", seen["above"], 0)
    ok(f"{name}: that was looked at", seen["samples"] > 50, seen)
    equal(f"{name}: all is given back, nobody complains", world.end(), [])


def alone_us(share, seed):
    """A member of that size, alone in its group."""
    world = new_world(usable(), 1)
    member = world.add(share * usable(), *member_options(seed)).ready()
    member.ask(2)
    took = span_us(member.ask(request_count(), 20 * options.seconds + 60))
    finish_world("alone", world)
    return took


def check_busy_and_idle():
    """One works, three have nothing to do."""
    def measure():
        alone = alone_us(0.6, 1)
        world = new_world(usable(), 4)
        busy = world.add(0.6 * usable(), *member_options(1)).ready()
        idle = [world.add(0.6 * usable(), *member_options(seed)).ready() for seed in (2, 3, 4)]
        for member in (busy, *idle):
            member.ask(1)
        busy.ask(2)  # as alone: its memory is back
        took = span_us(busy.ask(request_count(), 20 * options.seconds + 60))
        for member in idle:
            member.ask(1)
        finish_world("busy and idle", world)
        return took / alone
    within("one busy and three idle members, 2.4 devices together, by the time alone", BUSY_WITH_IDLE, measure)


def check_turns(count):
    """All work, all the time."""
    def measure():
        alone = sum(alone_us(0.6, seed) for seed in range(count))
        world = new_world(usable(), count)
        members = [world.add(0.6 * usable(), *member_options(seed)).ready() for seed in range(count)]
        for member in members:
            member.tell(f"requests {request_count()}")
        for member in members:
            member.hears("done", 30 * options.seconds * count + 60)
        rows = [row for member in members for row in member.requests]
        took = max(row[0] + row[1] for row in rows) - min(row[0] for row in rows)
        finish_world(f"{count} busy", world)
        return took / alone
    within(f"{count} busy members of 0.6 devices, by the time one after the other", TURNS, measure)


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
        finish_world("first answer", world)
        exchange_us = statistics.median(away_us) - statistics.median(resident_us)
        print(f"# first answers after {away_us} us, resident {resident_us} us: {0.5 * usable() / exchange_us / 1e3:.1f} GB/s "
              f"of {LINK}")
        return exchange_us / (0.5 * usable() / (LINK_SHARE * LINK_BYTES) * 1e6 + FIRST_ANSWER_US)
    within(f"first answer, by the time at {LINK_SHARE} of the link and {FIRST_ANSWER_US / 1000:.0f} ms", 1, measure)


def check_start():
    """A member whose many blocks come while others are busy: not each in a turn of its own."""
    world = new_world(usable(), 3)
    busy = [world.add(0.6 * usable(), *member_options(seed)).ready() for seed in (1, 2)]
    for member in busy:
        member.tell("busy")
    time.sleep(1)
    begin = time.monotonic()
    member = world.add(0.6 * usable(), "seed=3", "block=33554432", SPARSE).ready()
    count = world.turn(member)["exchange_count"]
    print(f"# ready after {time.monotonic() - begin:.1f} s and {count} exchanges")
    ok("start: a member that starts beside busy ones comes and goes rarely", count <= STARTS or options.roomy, count)
    for member in busy:
        member.tell("idle")
    finish_world("start", world)


def check_contents():
    """Every byte of blocks of all sizes, with blocks that come and go."""
    world = new_world(192 * MIB, 3, GPUCACHE_QUANTUM="50")
    members = [world.add(120 * MIB, f"seed={seed}", "whole=1", "churn=30", "block=20000000", "kernel_us=200").ready()
               for seed in (1, 2, 3)]
    for member in members:
        member.tell("requests 12")
    for member in members:
        member.hears("done", 300)
    equal("contents: all requests were served", [len(member.requests) for member in members], [12, 12, 12])
    members[0].tell("fork 200")
    members[1].tell("exec")
    members[1].ready()
    for member in members:
        member.ask(2)
    members[2].tell("spoil")
    try:
        members[2].ask(1)
    except Late:
        pass
    equal("contents: a wrong word would be seen", members[2].process.wait(), 3)
    members.remove(members[2])
    world.members = members
    for member in members:
        member.ask(1)
    finish_world("contents", world)


def tenant_options(count):
    """A member whose threads are so many tenants."""
    return member_options(1, f"tenants={count}")


def check_tenants(count):
    """Tenants of one process, all busy, that do not fit together."""
    def measure():
        world = new_world(usable(), 1)
        member = world.add(0.6 * usable(), *tenant_options(1)).ready()
        member.ask(2)
        alone = span_us(member.ask(request_count(), 20 * options.seconds + 60))
        finish_world("one tenant", world)
        world = new_world(usable(), 1)
        member = world.add(0.6 * usable(), *tenant_options(count)).ready()
        rows = member.ask(request_count(), 30 * options.seconds * count + 60)
        ok(f"{count} tenants: they take turns", options.roomy or world.turn(member)["exchange_count"] >= count, world.turn(member))
        took = max(row[0] + row[1] for row in rows) - min(row[0] for row in rows)
        finish_world(f"{count} tenants", world)
        return took / (count * alone)
    within(f"{count} busy tenants of 0.6 devices, by the time one after the other", TURNS, measure)


def check_tenant_contents():
    """Every byte, with blocks that come and go, of tenants that together need far more than there is."""
    world = new_world(192 * MIB, 2, GPUCACHE_QUANTUM="50")
    options_of = ("whole=1", "churn=30", "block=20000000", "kernel_us=200")
    members = [world.add(90 * MIB, "seed=3", "tenants=4", *options_of).ready(), world.add(60 * MIB, "seed=9", *options_of).ready()]
    for member in members:
        member.tell("requests 8")
    for member in members:
        member.hears("done", 300)
    equal("contents of tenants: all requests were served", [len(member.requests) for member in members], [32, 8])
    finish_world("contents of tenants", world)


def check_tenant_limit():
    """All tenants of a process are in; it has to leave, and then the group has room for two of them."""
    world = new_world(272 * MIB, 1, GPUCACHE_QUANTUM="50")
    member = world.add(84 * MIB, "tenants=3", "block=20000000", "kernel_us=500").ready()
    member.ask(2)
    world.tool("limit", GROUP, "272MiB")
    world.tool("evict", str(member.pid))
    member.tell("requests 20")
    member.hears("done", 60)
    equal("tenants and a lower limit: all requests were served", len(member.requests), 66)
    equal("tenants and a lower limit: a line is for a process that cannot come back", member.errors, [])
    finish_world("tenants and a lower limit", world)


def check_tenants_beside():
    """Tenants beside another process, tenants without work, and a limit of the process's own."""
    world = new_world(usable(), 2, GPUCACHE_QUANTUM="200")
    tenants = world.add(0.6 * usable(), *tenant_options(2)).ready()
    other = world.add(0.6 * usable(), *member_options(7)).ready()
    for member in (tenants, other):
        member.tell(f"requests {request_count() // 4}")
    for member in (tenants, other):
        member.hears("done", 300)
    equal("tenants and a process: all requests were served", [len(tenants.requests), len(other.requests)],
          [2 * (request_count() // 4), request_count() // 4])
    for tenant in (1, 2, 1, 2):
        time.sleep(2 * IDLE_S)
        tenants.tell(f"requests 1 {tenant}")
        tenants.hears("done")
        other.ask(1)
    finish_world("tenants and a process", world)
    world = new_world(usable(), 1, GPUCACHE_LIMIT=str(usable()))
    member = world.add(0.6 * usable(), *tenant_options(2), "refused=1").ready()
    member.ask(2)
    member.tell("end")
    member.process.wait(PATIENCE)
    for reader in member.readers:
        reader.join(PATIENCE)
    ok("tenants: the process's own limit holds for what is away, too", member.last.get("refused", 0) > 0, member.last)
    others = [line for line in member.errors if not REFUSED.match(line)]
    ok("tenants: a line says so", len(others) < len(member.errors), member.errors)
    member.errors = others
    finish_world("tenants with a limit", world)


def copied_out(path):
    """Bytes that the driver was asked to copy from the device in whole: the library's copies, members' own are of words."""
    with open(path, encoding="ascii") as stream:
        calls = [line.split() for line in stream]
    return sum(int(call[-2]) for call in calls if call[2].startswith("cuMemcpyDtoHAsync"))


def leaves(world, member):
    """Sends it out."""
    world.tool("evict", str(member.pid))
    until = time.monotonic() + PATIENCE
    while world.turn(member)["state"] != "away" and time.monotonic() < until:
        time.sleep(0.01)


def check_weights():
    """Memory that a program declares unchanging is copied out once, also beside blocks that come and go."""
    world = new_world(256 * MIB, 2, GPUCACHE_QUANTUM="50")
    journal, report = (os.path.join(world.folder, name) for name in ("journal", "report.json"))
    member = world.add(160 * MIB, "seed=1", SPARSE, "block=33554432", "weights=75",
                       SIMCUDA_JOURNAL=journal, GPUCACHE_REPORT=report).ready()
    churning = world.add(64 * MIB, "seed=2", "whole=1", "block=8000000", "weights=50", "churn=60").ready()
    copied, moved = [], []
    for _ in range(4):
        for one in (member, churning):
            leaves(world, one)
            one.ask(3)
        copied.append(copied_out(journal) - sum(copied))
        moved.append(world.turn(member)["out_bytes"] - sum(moved))
    print(f"# moved {[size // MIB for size in moved]} MiB, copied {[size // MIB for size in copied]} MiB")
    equal("weights: at first all is copied", copied[0], moved[0])
    equal("weights: then the same rest", (min(copied[1:]), min(moved)), (max(copied[1:]), max(moved)))
    ok("weights: which is what changes", 0 < copied[1] < moved[0] / 2, (copied, moved))
    equal("weights: it ends", member.end(), [])
    with open(report, encoding="utf-8") as stream:
        equal("weights: the report has what was not copied", json.load(stream)["devices"][0]["uncopied_bytes"],
              sum(moved) - sum(copied))
    finish_world("weights", world)


def check_start_in_full_group():
    """There is no room even for the context of a member that starts: the others give it, if they can come back beside it."""
    world = new_world(440 * MIB, 0)
    members = [world.add(130 * MIB, f"seed={seed}", SPARSE).ready() for seed in (1, 2)]
    members.append(world.add(130 * MIB, "seed=3", SPARSE, "patience_s=0").ready())
    for _ in range(3):
        for member in members:
            member.ask(1)
    finish_world("start in a full group", world)
    world = new_world(400 * MIB, 0)
    first = world.add(310 * MIB, "seed=1", SPARSE).ready()
    second = world.add(50 * MIB, "seed=2", SPARSE, "patience_s=0")
    equal("start in a full group: a context beside which another does not fit is refused", second.process.wait(PATIENCE), 1)
    for reader in second.readers:
        reader.join(PATIENCE)
    ok("start in a full group: a line says why", any("could not come back beside it" in line for line in second.errors), second.errors)
    world.members.remove(second)
    for _ in range(3):
        first.ask(1)
        time.sleep(IDLE_S)
    finish_world("start beside one that fills it", world)


def check_start_during_exchange():
    """Memory that comes back while a member starts counts once: the context has room beside it."""
    if not has_link():
        return
    world = World(620 * MIB, 1, SIMCUDA_LINK="out=25GB,in=400MB", GPUCACHE_QUANTUM="50")
    first, second = (world.add(400 * MIB, f"seed={seed}", SPARSE).ready() for seed in (1, 2))
    leaves(world, first)
    moved = world.turn(first)["in_bytes"]
    first.tell("requests 1")
    until = time.monotonic() + PATIENCE
    while world.turn(first)["in_bytes"] < moved + 200 * MIB and time.monotonic() < until:
        pass
    third = world.add(16 * MIB, "seed=3", SPARSE, "patience_s=0").ready()
    first.hears("done")
    for member in (second, third, first):
        member.ask(1)
    finish_world("start while memory comes back", world)


def check_host_limit():
    """No more goes than the host has room for: who needs it is refused, and the line says why."""
    world = new_world(192 * MIB, 2, GPUCACHE_QUANTUM="50", GPUCACHE_HOST_LIMIT="64MiB")
    first = world.add(120 * MIB, "seed=1", "block=20000000", "kernel_us=200").ready()
    second = world.add(120 * MIB, "seed=2", "block=20000000", "kernel_us=200", "refused=1").ready()
    ok("host limit: what has no room is refused", second.held < 120 * MIB, second.held)
    ok("host limit: the host memory is bounded, with a reserve", world.turn(first)["host_bytes"] <= 32 * MIB, world.turn(first))
    row = world.device_row(first)
    ok("host limit: top shows what is away", 0 < row["swapped_bytes"] <= 32 * MIB, row)
    lines = first.errors + second.errors
    ok("host limit: a line says why", any("of 64 MiB for swapped and spilled memory are taken" in line for line in lines), lines)
    for _ in range(4):  # what is left of the host memory suffices for exchanges, a part after the other
        for member in (first, second):
            member.ask(1)
    first.errors.clear()
    second.errors.clear()
    equal("host limit: the second ends", second.end(), [])
    world.members.remove(second)
    equal("host limit: the first goes on", len(first.ask(3)), 3)
    equal("host limit: nothing is away any more", world.device_row(first)["swapped_bytes"], 0)
    finish_world("host limit", world)


def check_short_host():
    """Copies of declared memory leave the group's host memory to those that need it."""
    world = new_world(256 * MIB, 3, GPUCACHE_QUANTUM="50", GPUCACHE_HOST_LIMIT=str(256 * MIB))
    keeper = world.add(96 * MIB, "seed=1", SPARSE, "block=33554432", "weights=100").ready()
    leaves(world, keeper)
    keeper.ask(1)
    ok("short host: copies are kept", world.turn(keeper)["host_bytes"] >= 96 * MIB, world.turn(keeper))
    world.tool("pin", str(keeper.pid))
    others = [world.add(144 * MIB, f"seed={seed}", SPARSE).ready() for seed in (2, 3)]
    for _ in range(4):
        for member in others:
            member.ask(1)
    ok("short host: they gave way", world.turn(keeper)["host_bytes"] == 0, world.turn(keeper))
    keeper.ask(1)
    finish_world("short host", world)


CHECKS = {"contents": check_contents, "start": lambda: [check_start(), check_start_in_full_group(), check_start_during_exchange()],
          "host": lambda: [check_host_limit(), check_short_host()], "weights": check_weights,
          "first": check_first_answer, "idle": check_busy_and_idle,
          "two": lambda: check_turns(2), "three": lambda: check_turns(3),
          "tenants": lambda: [check_tenants(2), check_tenants(3)], "beside": check_tenants_beside,
          "tenant-contents": check_tenant_contents, "tenant-limit": check_tenant_limit}


def main():
    """All of it; ends with 1 if anything failed."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--usable", type=int, default=options.usable)
    parser.add_argument("--seconds", type=float, default=options.seconds)
    parser.add_argument("--roomy", action="store_true")
    parser.add_argument("checks", nargs="*", metavar="CHECK")
    parser.parse_args(namespace=options)
    for name in options.checks or CHECKS:
        try:
            CHECKS[name]()
        except Late as problem:
            ok(f"{name}: nobody waits for ever, and all get their memory", False, str(problem))
    return finish()


if __name__ == "__main__":
    sys.exit(main())
