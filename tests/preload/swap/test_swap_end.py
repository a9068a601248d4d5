#!/usr/bin/env python3
"""A program that ends while its memory is away, or paused: a destructor that runs after the library's own end works with the
memory, and takes more. It finds its content, and does not wait for ever: no helper thread is left that would bring it back."""
# timeout: 300
# waits: for programs that end
import os
import subprocess
import sys

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
from swap import Late, World
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from live import BUILD, MIB, PATIENCE, equal, finish, ok

ENDS = [os.path.join(BUILD, "tests/preload/ends"), "object-work", os.path.join(BUILD, "tests/preload/libends.so")]
WORK = "the destructor's content: ok\nits fill: ok\nits allocation: ok\n"
USABLE = 256 * MIB
RESUMED = "gpucache: paused, but the process ends, and work of a destructor waits: resumed\n"


class Ending:
    """The program that ends."""

    def __init__(self, world, **settings):
        self.process = subprocess.Popen(ENDS, env=world.environment(**settings), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        equal("it has its memory", self.process.stdout.readline(), "ready\n")

    def end(self):
        """Exit status, output, complaints."""
        try:
            out, error = self.process.communicate("\n", timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, error = self.process.communicate()
        return self.process.returncode, out, error


def check(name, put_out, complaint="", content="", **settings):
    """`put_out` takes the program's memory off the device."""
    world = World(USABLE, 2)
    ending = Ending(world, **settings)
    try:
        put_out(world, ending)
    except Late as problem:
        ok(f"{name}: {problem}", False)
    equal(f"{name}: work of a destructor finds its memory", ending.end(), (0, content + WORK, complaint))
    seen = world.look()
    equal(f"{name}: never above the limit", seen["above"], 0)
    equal(f"{name}: all is given back", world.end(), [])


def pause(world, ending):
    """As an operator does."""
    done = world.tool("pause", str(ending.pid), "--timeout", str(PATIENCE))
    ok("the program is paused", done.returncode == 0, done.stderr)


def put_away(world, ending):
    """Another program needs nearly all that the group may hold."""
    world.add(USABLE * 0.9, "seed=1").ready().ask(1)
    equal("its memory is away", world.turn(ending)["state"], "away")


def pause_and_fill(world, ending):
    """Its memory must wait for its turn when it comes back."""
    pause(world, ending)
    world.add(USABLE * 0.9, "seed=1").ready().ask(1)


def main():
    """All of them."""
    check("away", put_away)
    check("paused", pause, RESUMED)
    check("paused, and others use the memory", pause_and_fill, RESUMED)
    check("paused, without turns", pause, RESUMED, GPUCACHE_OVERCOMMIT="off")
    check("paused, and a thread waits that the destructor ends", pause, RESUMED, "the thread's content: ok\n", ENDS_THREAD="1")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
