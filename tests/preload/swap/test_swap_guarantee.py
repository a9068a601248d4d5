#!/usr/bin/env python3
"""GPUCACHE_GUARANTEE where the processes of a group take turns, and where they do not."""
# timeout: 200
import os
import sys
import time

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
from swap import World
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from live import CONTEXT, MIB, PATIENCE, equal, finish, ok

USABLE = 512 * MIB
GUARANTEE = str((300 + CONTEXT) * MIB)
QUANTUM_MS = 20000  # longer than anything here takes


def exchanges(world, member):
    """How often it came back."""
    return world.turn(member)["exchange_count"]


def serves(member, seconds=PATIENCE):
    """Whether it answers another request."""
    before = len(member.requests)
    until = time.monotonic() + seconds
    while len(member.requests) == before and time.monotonic() < until:
        time.sleep(0.01)
    return len(member.requests) > before


def check_turns():
    """A busy process beyond its guarantee has just begun a long turn."""
    world = World(USABLE, 2, GPUCACHE_QUANTUM=str(QUANTUM_MS))
    sure = world.add(200 * MIB, "seed=1", GPUCACHE_GUARANTEE=GUARANTEE).ready()
    burst = world.add(400 * MIB, "seed=2").ready()
    burst.tell("busy")
    ok("it works", serves(burst))
    equal("the process with the guarantee gave its memory while it had no work", world.turn(sure)["state"], "away")
    begin = time.monotonic()
    sure.ask(1)
    took = time.monotonic() - begin
    ok("with work it has it back long before the other's turn is over", took < QUANTUM_MS / 4000, f"{took:.2f} s")
    sure.tell("busy")
    ok("it works on", serves(sure))
    before = exchanges(world, sure)
    time.sleep(2)
    equal("while it has work it stays", exchanges(world, sure), before)
    equal("and the other one waits", world.turn(burst)["state"], "waiting")
    sure.tell("idle")
    ok("then the other one goes on", serves(burst), world.turn(burst))
    burst.tell("idle")
    equal("turns: all is given back", world.end(), [])


def check_kept():
    """Without turns what is guaranteed is kept free, and all else may be had."""
    world = World(USABLE, 2, GPUCACHE_OVERCOMMIT="off")
    sure = world.add(50 * MIB, "seed=1", GPUCACHE_GUARANTEE=GUARANTEE).ready()
    burst = world.add(200 * MIB, "seed=2").ready()
    greedy = world.add(300 * MIB, "seed=3", "refused=1", "patience_s=0")
    problems = greedy.end()
    ok("a third one gets nothing of what is kept", problems != [], problems)
    world.members.remove(greedy)
    row = world.device_row(burst)
    ok("what the others leave may be had", row["reserved_bytes"] >= 200 * MIB, row)
    equal("kept: all is given back", world.end(), [])
    del sure


def main():
    check_turns()
    check_kept()
    return finish()


if __name__ == "__main__":
    sys.exit(main())
