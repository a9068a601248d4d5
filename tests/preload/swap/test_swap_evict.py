#!/usr/bin/env python3
"""gpucache evict: it answers when the memory has left the device, or says what stands in the way. And what is away comes back
before the program gets an entry point through which it may work unseen."""
# timeout: 300
import os
import re
import subprocess
import sys
import time

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
from swap import World
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from live import BUILD, CONTEXT, MIB, PATIENCE, equal, finish, ok

USABLE = 512 * MIB
HELD = 300 * MIB
UNSEEN = "refused: work may be submitted that the library does not see"
LONG_US = 4000000  # more than the library waits for work


def evict(world, member, *options):
    """The tool; exit status, and what it says of the process."""
    done = world.tool("evict", str(member.pid), *options)
    said = (done.stdout + done.stderr).strip()
    return done.returncode, re.sub(rf"^(gpucache evict: )?process {member.pid} \(swap_member\):? ?", "", said)


def check_unseen():
    """No gate holds up such work, so it must not find its memory away."""
    world = World(USABLE, 1)
    with subprocess.Popen([os.path.join(BUILD, "tests/preload/swap_unseen")], env=world.environment(), stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        equal("it has its memory", program.stdout.readline(), "ready\n")
        before = world.look()["used"]
        status = world.tool("evict", str(program.pid)).returncode
        ok("its memory is away", status == 0 and world.look()["used"] <= before - 64 * MIB)
        program.stdin.write("\n")
        program.stdin.flush()
        equal("work that no gate sees finds its memory", program.stdout.readline(), "content ok\n")
        ok("and it does not go", world.tool("evict", str(program.pid)).stderr.strip().endswith(UNSEEN))
        program.communicate("\n", timeout=PATIENCE)
    equal("unseen: all is given back", world.end(), [])


def main():
    """One member at a time."""
    world = World(USABLE, 2)
    idle = world.add(HELD, "seed=1").ready()
    idle.ask(1)
    before = world.look()["used"]
    status, said = evict(world, idle)
    left = before - world.look()["used"]
    ok("what is evicted has left when the answer comes", status == 0 and left >= HELD, (status, said, left))
    ok("the answer has what left and what stays", re.fullmatch(r"evicted: [\d.]+ MiB left the device, [\d.]+ \w+ stays", said), said)
    equal("it is away", world.turn(idle)["state"], "away")
    equal("again: nothing is left to leave", evict(world, idle)[1].split(",")[0], "evicted: 0 B left the device")
    idle.ask(1)
    ok("it is back at its next work, with its content", world.look()["used"] >= before - CONTEXT * MIB)

    world.tool("pin", str(idle.pid))
    equal("a pinned one is not evicted", evict(world, idle), (1, "refused: it is pinned"))
    world.tool("pin", str(idle.pid), "--off")
    equal("not awaited", evict(world, idle, "--timeout", "0"), (0, "request left, answer not awaited"))
    idle.end()
    world.members.remove(idle)

    busy = world.add(HELD, "seed=2", "kernel_us=5000").ready()
    busy.tell("busy")
    for _ in range(3):
        status, said = evict(world, busy)
        ok("one with work is evicted between two submissions", status == 0, said)
    busy.tell("idle")
    busy.ask(1)
    world.members.remove(busy)
    equal("its content is right", busy.end(), [])

    works = world.add(HELD, "seed=3", f"kernel_us={LONG_US}").ready()
    works.tell("requests 1")
    time.sleep(0.5)
    equal("work that does not end stands in the way", evict(world, works, "--timeout", str(PATIENCE)),
          (1, "refused: work under way did not complete in time"))
    works.hears("done")
    equal("never above the limit", world.look()["above"], 0)
    equal("all is given back", world.end(), [])
    check_unseen()
    return finish()


if __name__ == "__main__":
    sys.exit(main())
