#!/usr/bin/env python3
"""A refused request has one line: the bound, its figures, and a value that would have sufficed, which then suffices."""
# timeout: 120
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from live import BUILD, OUT_OF_MEMORY, Client, equal, finish, ok  # noqa: E402


class Refused:
    """Runs of the program, each with a ledger of its own, whose stderr is kept."""

    def __init__(self, base):
        self.base = base
        self.count = 0

    def run(self, commands, **settings):
        """The answers, and the lines on stderr."""
        self.count += 1
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": os.path.join(BUILD, "simcuda"),
                       "LD_PRELOAD": os.path.join(BUILD, "libgpucache.so"), "GPUCACHE_REPORT": "none",
                       "GPUCACHE_LEDGER": os.path.join(self.base, f"ledger-{self.count}"), "SIMCUDA_MEMORY": "4GiB"}
        environment.update(settings)
        done_run = subprocess.run([os.path.join(BUILD, "tests/preload/live_client")], env=environment, text=True,
                                  input="".join(line + "\n" for line in commands), capture_output=True, check=False)
        return done_run.stdout.split()[1:], done_run.stderr.splitlines()


def wanted(line):
    """The size that would have sufficed, as the line has it."""
    found = re.search(r"; (\S+) (\S+) would have done", line)
    return f"{found[1]}{found[2]}" if found else None


def check_limit(refused, name, variable, pattern, **settings):
    """Four refused requests, one line; with the value that it names all are served."""
    commands = ["alloc 700"] + ["alloc 600"] * 4
    answers, lines = refused.run(commands, **{variable: "1GiB"}, **settings)
    equal(f"{name}: refused", answers, ["0"] + [OUT_OF_MEMORY] * 4)
    ok(f"{name}: one line, with the limit", len(lines) == 1 and re.search(pattern, lines[0]), lines)
    size = wanted(lines[0]) if lines else None
    ok(f"{name}: it names a value", size is not None, lines)
    if size:
        answers, lines = refused.run(commands[:2], **{variable: size}, **settings)
        equal(f"{name}: {size} suffices", (answers, lines), (["0", "0"], []))


def check_tenant(refused):
    """The limit of a tenant, which GPUCACHE_TENANTS has."""
    answers, lines = refused.run(["alloc 700", "alloc 600"], GPUCACHE_TENANTS="all=*:1GiB")
    equal("tenant: refused", answers, ["0", OUT_OF_MEMORY])
    ok("tenant: one line", len(lines) == 1 and "limit 1.0 GiB of tenant all (GPUCACHE_TENANTS), live 700.0 MiB" in lines[0],
       lines)
    size = wanted(lines[0])
    answers, lines = refused.run(["alloc 700", "alloc 600"], GPUCACHE_TENANTS=f"all=*:{size}")
    equal(f"tenant: {size} suffices", (answers, lines), (["0", "0"], []))


def check_device(refused):
    """A full device, and a request larger than the device."""
    answers, lines = refused.run(["alloc 3900", "alloc 600"])
    equal("device: refused", answers, ["0", OUT_OF_MEMORY])
    ok("device: one line", len(lines) == 1 and re.search(
        r"600.0 MiB refused: the device has \S+ MiB free of 4.0 GiB, live 3.8 GiB.*, other processes and contexts \S+ \S+; "
        r"\S+ MiB more would have done$", lines[0]), lines)
    answers, lines = refused.run(["alloc 5000"])
    equal("larger than the device: refused", answers, [OUT_OF_MEMORY])
    equal("larger than the device: one line", lines, ["gpucache: device 0: 4.9 GiB refused: the device has 4.0 GiB"])


def check_group(base):
    """Another process of the group has the memory."""
    settings = {"GPUCACHE_GROUP": "g", "GPUCACHE_GROUP_LIMIT": "1GiB"}
    other = Client(base, "other", **settings)
    equal("group: another process has some", other.command("alloc 600"), "0")
    environment = {"GPUCACHE_LEDGER": os.path.join(base, "ledger"), **settings}
    answers, lines = Refused(base).run(["alloc 600"], **environment)
    equal("group: refused", answers, [OUT_OF_MEMORY])
    ok("group: one line", len(lines) == 1 and re.search(
        r"limit 1.0 GiB of group g \(GPUCACHE_GROUP_LIMIT\), live 0 B, .*other processes 664.0 MiB; 1.3 GiB would have done",
        lines[0]), lines)
    other.end()


def main():
    with tempfile.TemporaryDirectory() as base:
        refused = Refused(base)
        check_limit(refused, "own limit", "GPUCACHE_LIMIT",
                    r"600.0 MiB refused: limit 1.0 GiB \(GPUCACHE_LIMIT\), live 700.0 MiB, idle 0 B, largest free 0 B")
        check_limit(refused, "a limit of HAMi's variable", "CUDA_DEVICE_MEMORY_LIMIT",
                    r"limit 1.0 GiB \(CUDA_DEVICE_MEMORY_LIMIT\), live 700.0 MiB")
        check_limit(refused, "group's limit, alone in it", "GPUCACHE_GROUP_LIMIT",
                    r"limit 1.0 GiB of group g \(GPUCACHE_GROUP_LIMIT\), live 700.0 MiB", GPUCACHE_GROUP="g")
        check_tenant(refused)
        check_device(refused)
        check_group(base)
        open_folder = os.path.join(base, "open")
        os.mkdir(open_folder)
        os.chmod(open_folder, 0o755)
        group = {"GPUCACHE_LEDGER": open_folder, "GPUCACHE_GROUP": "g", "GPUCACHE_GROUP_LIMIT": "1GiB"}
        answers, lines = refused.run(["alloc 700"], **group)
        ok("without a ledger a group's limit holds in each process, with a line", answers == ["0"] and "in this process alone" in lines[0], lines)
        answers, lines = refused.run(["alloc 700"], GPUCACHE_LEDGER_REQUIRED="1", **group)
        ok("GPUCACHE_LEDGER_REQUIRED: cuInit fails", answers == [] and any("cuInit fails" in line for line in lines), lines)
        answers, lines = refused.run(["alloc 700"], GPUCACHE_LEDGER_REQUIRED="1", **{**group, "GPUCACHE_LEDGER": open_folder + "-own"})
        equal("and with a ledger it does not", (answers, lines), (["0"], []))
        answers, lines = refused.run(["alloc 700"], GPUCACHE_LIMIT="1GiB", GPUCACHE_LOG="error")
        equal("nothing is printed where all is served", (answers, lines), (["0"], []))
        answers, lines = refused.run([f"alloc 2000"], GPUCACHE_LIMIT="1GiB", GPUCACHE_LOG="error")
        equal("GPUCACHE_LOG=error: no line", (answers, lines), ([OUT_OF_MEMORY], []))
    return finish()


if __name__ == "__main__":
    sys.exit(main())
