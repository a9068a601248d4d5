#!/usr/bin/env python3
"""gpucache pause and resume on real programs on the simulated device: two that do not fit together take turns and lose
nothing, with a group and without; what cannot be paused is refused with a reason, and goes on."""
import atexit
import contextlib
import json
import os
import select
import sys
import tempfile
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from live import MIB, OUT_OF_MEMORY, PATIENCE, Client, end_tool, equal, finish, ok, start_tool, tool

DEVICE = 512  # MiB; each context takes 64
NEED = 310  # more than 70 % of what two contexts leave


def forget_device(name):
    """What the simulated device leaves for those who come to it later."""
    with contextlib.suppress(OSError):
        os.unlink(f"/dev/shm/simcuda-{os.getuid()}-{name}")


def settings(base, group):
    """Two programs on one device."""
    atexit.register(forget_device, "pause-" + os.path.basename(base))
    shared = {"SIMCUDA_MEMORY": f"{DEVICE}MiB", "SIMCUDA_SHARED": "pause-" + os.path.basename(base),
              "SIMCUDA_WORK_US": "200"}
    if group:
        shared.update(GPUCACHE_GROUP="turns", GPUCACHE_GROUP_LIMIT=f"{DEVICE}MiB")
    return shared


def result_of(process):
    """Exit status, and the output of the tool."""
    status, out, error = end_tool(process)
    return status, out + error


class Turns:
    """A client whose answers may be late."""

    def __init__(self, base, name, group, **more):
        self.base = base
        self.client = Client(base, name, **settings(base, group), **more)
        self.pid = self.client.pid

    def ask(self, line):
        """A command whose answer is read later."""
        self.client.process.stdin.write(line + "\n")
        self.client.process.stdin.flush()

    def hears(self, seconds):
        """The answer, or None if there is none in that time."""
        ready, _, _ = select.select([self.client.process.stdout], [], [], seconds)
        return self.client.process.stdout.readline().strip() if ready else None

    def command(self, line):
        """Command and answer."""
        self.ask(line)
        return self.hears(PATIENCE)

    def start(self, command, *more):
        """Pause or resume by the tool."""
        return start_tool(self.base, command, self.pid, *more)

    def move(self, command, *more):
        """The same; exit status and output."""
        return result_of(self.start(command, *more))

    def allocate(self, mib):
        """Blocks of 16 MiB, and a few small ones."""
        results = {self.command("alloc 16") for _ in range(mib // 16)}
        if results == {"0"}:
            results |= {self.command("kib 4") for _ in range(8)}
        return results


def pursue(turns, asked):
    """Gives the client something to do until the tool has its answer; the last of it waits."""
    turns.ask("fill 99")
    pace = 0.1
    while asked.poll() is None:
        if turns.hears(pace) is not None:  # it came before the request; not so often that its work piles up
            time.sleep(pace)
            pace *= 2
            turns.ask("fill 99")
    return asked


def pause(turns, group):
    """Paused while it works: without a helper it answers at its next call, which then waits."""
    if group:
        return turns.move("pause"), None
    return result_of(pursue(turns, turns.start("pause"))), "fill 99"


def check_turns(base, group):
    """Each has all it needs while the other is away."""
    what = "group" if group else "alone"
    first, second = Turns(base, "first", group), Turns(base, "second", group)
    equal(f"{what}: the first has its memory", first.allocate(NEED), {"0"})
    first.command("fill 1")
    ok(f"{what}: the second has not", OUT_OF_MEMORY in second.allocate(NEED))
    (status, answer), waiting = pause(first, group)
    equal(f"{what}: the first is paused", status, 0)
    ok(f"{what}: and its memory is in the host", "moved to host memory" in answer, answer)
    status, answer = first.move("pause")
    ok(f"{what}: a second pause is refused", status == 1 and "it is paused already" in answer, answer)
    for number in range(NEED // 16):
        second.command(f"free {number}")
    equal(f"{what}: the second has room now", second.allocate(NEED), {"0"})
    second.command("fill 7")
    if waiting is None:
        first.ask("fill 2")
    equal(f"{what}: the first waits", first.hears(0.3), None)
    status, answer = first.move("resume")
    ok(f"{what}: there is no room for it to resume", status == 1 and "not enough free memory" in answer, answer)
    equal(f"{what}: the second is not disturbed", second.command("check 7"), "same")
    (status, answer), held = pause(second, group)
    equal(f"{what}: the second is paused", status, 0)
    status, answer = first.move("resume")
    ok(f"{what}: the first resumes", status == 0 and "back on the device" in answer, answer)
    equal(f"{what}: and goes on where it was", first.hears(PATIENCE), "0")
    equal(f"{what}: with its memory", first.command("check " + ("2" if waiting is None else "99")), "same")
    (status, answer), waiting = pause(first, group)
    equal(f"{what}: the first is paused again", status, 0)
    equal(f"{what}: the second resumes", second.move("resume")[0], 0)
    if held is not None:
        equal(f"{what}: it had waited", second.hears(PATIENCE), "0")
    equal(f"{what}: with its memory", second.command("check " + ("7" if held is None else "99")), "same")
    equal(f"{what}: the second ends", second.client.end()["leak_count"] > 0, True)
    status, answer = first.move("resume")
    ok(f"{what}: the first resumes and ends", status == 0, answer)
    if waiting is not None:
        first.hears(PATIENCE)
    equal(f"{what}: with its memory", first.command("check " + ("2" if group else "99")), "same")
    reserved = first.client.end()["reserved_bytes"]
    ok(f"{what}: its peak was never more than it had", reserved["peak"] <= (NEED + 64 + 16) * MIB, reserved)


def check_refusals(base):
    """An impossible request is refused with a reason, and changes nothing."""
    one = Turns(base, "one", True)
    equal("refusals: memory", one.allocate(64), {"0"})
    one.command("fill 3")
    status, answer = one.move("resume")
    ok("refusals: it is not paused", status == 1 and "it is not paused" in answer, answer)
    one.command("capture 1")
    status, answer = one.move("pause")
    ok("refusals: a capture", status == 1 and "captured" in answer, answer)
    equal("refusals: the capture survives", one.command("capture 0"), "0")
    equal("refusals: nothing has changed", one.command("check 3"), "same")
    equal("drop: paused", one.move("pause", "--drop")[0], 0)
    equal("drop: resumed", one.move("resume")[0], 0)
    one.command("fill 4")
    equal("drop: the memory is usable", one.command("check 4"), "same")
    one.client.end()
    plain = Turns(base, "plain", True, GPUCACHE_BACKEND="driver")
    plain.allocate(32)
    status, answer = plain.move("pause")
    ok("refusals: memory of the driver's own", status == 1 and "not mapped" in answer, answer)
    plain.client.end()
    killed = Turns(base, "killed", True)
    killed.allocate(64)
    equal("killed while it is paused: paused", killed.move("pause")[0], 0)
    killed.client.process.kill()
    killed.client.process.wait()
    equal("killed while it is paused: gone", killed.move("resume")[0], 1)
    equal("killed while it is paused: top", tool(base, "top", "--once")[0], 0)


def check_ends(base):
    """Paused by the program itself, resumed from outside; and a paused program that ends."""
    one = Turns(base, "self", False)
    equal("itself: memory", one.allocate(64), {"0"})
    one.command("fill 3")
    equal("itself: paused", one.command("pause"), "0")
    one.ask("fill 5")
    equal("itself: its work waits", one.hears(0.3), None)
    status, answer = one.move("resume")
    ok("itself: the waiting thread sees the resume", status == 0 and "back on the device" in answer, answer)
    equal("itself: it goes on", one.hears(PATIENCE), "0")
    equal("itself: with its memory", one.command("check 5"), "same")
    equal("itself: paused once more", one.command("pause"), "0")
    one.ask("alloc 48")
    equal("itself: a request that needs memory waits", one.hears(0.3), None)
    status, answer = one.move("resume")
    ok("itself: it hears the resume too", status == 0 and "back on the device" in answer, answer)
    equal("itself: and is served", one.hears(PATIENCE), "0")
    equal("itself: paused again", one.command("pause"), "0")
    equal("itself: memory is freed meanwhile", one.command("free 0"), "0")
    equal("itself: it ends and reports", one.client.end()["reserved_bytes"]["current"] < 80 * MIB, True)


def states(base):
    """The state of each tenant that top shows."""
    shown = json.loads(tool(base, "top", "--once", "--json")[1])
    return {row["name"]: row["state"] for process in shown["processes"] for row in process["tenants"]}


def check_tenants(base):
    """A tenant inside a process, by its name."""
    for group in (True, False):
        what = "tenant, " + ("group" if group else "alone")
        one = Turns(base, f"tenants{group}", group, GPUCACHE_TENANTS="live=live_client:400MiB,rest=*:1GiB")
        equal(f"{what}: memory", one.allocate(64), {"0"})
        one.command("fill 3")
        asked = start_tool(base, "pause", "live" if group else "tenant:live")
        status, answer = result_of(asked if group else pursue(one, asked))
        ok(f"{what}: paused", status == 0 and "moved to host memory" in answer, answer)
        equal(f"{what}: it is shown", states(base).get("live"), "paused")
        if group:
            one.ask("fill 99")
        equal(f"{what}: its work waits", one.hears(0.3), None)
        status, answer = result_of(start_tool(base, "resume", "live"))
        ok(f"{what}: resumed", status == 0 and "back on the device" in answer, answer)
        equal(f"{what}: it goes on", one.hears(PATIENCE), "0")
        equal(f"{what}: with its memory", one.command("check 99"), "same")
        equal(f"{what}: it is shown as running", states(base).get("live"), "running")
        one.client.end()


def main():
    """All of it; ends with 1 if anything failed."""
    for check in (lambda base: check_turns(base, True), lambda base: check_turns(base, False), check_refusals,
                  check_ends, check_tenants):
        with tempfile.TemporaryDirectory(prefix="gpucache-pause.") as base:
            check(base)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
