#!/usr/bin/env python3
"""GPUCACHE_OVERCOMMIT=swap: the contents of memory that goes and comes back, programs that start beside others, limits of the
host's memory, declared memory, tenants. Every program checks what it reads; the device's own account never shows more than
the group's limit. No time is compared.

usage: test_swap_contents.py [CHECK…]

CHECK: contents, start, host, weights, beside, tenant-contents, tenant-limit."""
# timeout: 400
# waits: for members that work, start and end
import json
import os
import sys
import time

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
from swap import GROUP, IDLE_S, REFUSED, SPARSE, Late, World, has_link, member_options, run_checks
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from live import MIB, PATIENCE, equal, ok

USABLE = 1024 * MIB
REQUESTS = 50
STARTS = 3  # turns of a member that starts


def check_contents():
    """Every byte of blocks of all sizes, with blocks that come and go."""
    world = World(192 * MIB, 3, GPUCACHE_QUANTUM="50")
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
    world.finish("contents")


def check_tenant_contents():
    """Every byte, with blocks that come and go, of tenants that together need far more than there is."""
    world = World(192 * MIB, 2, GPUCACHE_QUANTUM="50")
    options_of = ("whole=1", "churn=30", "block=20000000", "kernel_us=200")
    members = [world.add(90 * MIB, "seed=3", "tenants=4", *options_of).ready(), world.add(60 * MIB, "seed=9", *options_of).ready()]
    for member in members:
        member.tell("requests 8")
    for member in members:
        member.hears("done", 300)
    equal("contents of tenants: all requests were served", [len(member.requests) for member in members], [32, 8])
    world.finish("contents of tenants")


def check_tenant_limit():
    """All tenants of a process are in; it has to leave, and then the group has room for two of them."""
    world = World(272 * MIB, 1, GPUCACHE_QUANTUM="50")
    member = world.add(84 * MIB, "tenants=3", "block=20000000", "kernel_us=500").ready()
    member.ask(2)
    world.tool("limit", GROUP, "272MiB")
    world.tool("evict", str(member.pid))
    member.tell("requests 20")
    member.hears("done", 60)
    equal("tenants and a lower limit: all requests were served", len(member.requests), 66)
    equal("tenants and a lower limit: a line is for a process that cannot come back", member.errors, [])
    world.finish("tenants and a lower limit")


def check_tenants_beside():
    """Tenants beside another process, tenants without work, and a limit of the process's own."""
    world = World(USABLE, 2, GPUCACHE_QUANTUM="200")
    tenants = world.add(0.6 * USABLE, *member_options(1, "tenants=2")).ready()
    other = world.add(0.6 * USABLE, *member_options(7)).ready()
    for member in (tenants, other):
        member.tell(f"requests {REQUESTS}")
    for member in (tenants, other):
        member.hears("done", 300)
    equal("tenants and a process: all requests were served", [len(tenants.requests), len(other.requests)],
          [2 * REQUESTS, REQUESTS])
    for tenant in (1, 2, 1, 2):
        time.sleep(2 * IDLE_S)
        tenants.tell(f"requests 1 {tenant}")
        tenants.hears("done")
        other.ask(1)
    world.finish("tenants and a process")
    world = World(USABLE, 1, GPUCACHE_LIMIT=str(USABLE))
    member = world.add(0.6 * USABLE, *member_options(1, "tenants=2"), "refused=1").ready()
    member.ask(2)
    member.tell("end")
    member.process.wait(PATIENCE)
    for reader in member.readers:
        reader.join(PATIENCE)
    ok("tenants: the process's own limit holds for what is away, too", member.last.get("refused", 0) > 0, member.last)
    others = [line for line in member.errors if not REFUSED.match(line)]
    ok("tenants: a line says so", len(others) < len(member.errors), member.errors)
    member.errors = others
    world.finish("tenants with a limit")


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
    world = World(256 * MIB, 2, GPUCACHE_QUANTUM="50")
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
    world.finish("weights")


def check_start():
    """A member whose many blocks come while others are busy: not each in a turn of its own."""
    world = World(USABLE, 3)
    busy = [world.add(0.6 * USABLE, *member_options(seed)).ready() for seed in (1, 2)]
    for member in busy:
        member.tell("busy")
    time.sleep(1)
    begin = time.monotonic()
    member = world.add(0.6 * USABLE, "seed=3", "block=33554432", SPARSE).ready()
    count = world.turn(member)["exchange_count"]
    print(f"# ready after {time.monotonic() - begin:.1f} s and {count} exchanges")
    ok("start: a member that starts beside busy ones comes and goes rarely", count <= STARTS, count)
    for member in busy:
        member.tell("idle")
    world.finish("start")


def check_start_in_full_group():
    """There is no room even for the context of a member that starts: the others give it, if they can come back beside it."""
    world = World(440 * MIB, 0)
    members = [world.add(130 * MIB, f"seed={seed}", SPARSE).ready() for seed in (1, 2)]
    members.append(world.add(130 * MIB, "seed=3", SPARSE, "patience_s=0").ready())
    for _ in range(3):
        for member in members:
            member.ask(1)
    world.finish("start in a full group")
    world = World(400 * MIB, 0)
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
    world.finish("start beside one that fills it")


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
    world.finish("start while memory comes back")


def check_host_limit():
    """No more goes than the host has room for: who needs it is refused, and the line says why."""
    world = World(192 * MIB, 2, GPUCACHE_QUANTUM="50", GPUCACHE_HOST_LIMIT="64MiB")
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
    world.finish("host limit")


def check_short_host():
    """Copies of declared memory leave the group's host memory to those that need it."""
    world = World(256 * MIB, 3, GPUCACHE_QUANTUM="50", GPUCACHE_HOST_LIMIT=str(256 * MIB))
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
    world.finish("short host")


CHECKS = {"contents": check_contents, "start": lambda: [check_start(), check_start_in_full_group(), check_start_during_exchange()],
          "host": lambda: [check_host_limit(), check_short_host()], "weights": check_weights, "beside": check_tenants_beside,
          "tenant-contents": check_tenant_contents, "tenant-limit": check_tenant_limit}

if __name__ == "__main__":
    sys.exit(run_checks(CHECKS, sys.argv[1:]))
