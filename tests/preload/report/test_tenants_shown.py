#!/usr/bin/env python3
"""Tenants inside a process, as top and the report show them: the same figures, a row for each."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from live import BUILD, MIB, equal, finish, ok, tool

BLOCK = 10 * MIB
GAUGES = ("requested", "allocated", "reserved")


def start(base, report, **settings):
    """The program with two objects; at its end it prints "ready"."""
    objects = [os.path.join(base, name) for name in ("libtenant-one.so", "libtenant-two.so.1")]
    for path in objects:
        shutil.copy(os.path.join(BUILD, "tests/preload/libtenant.so"), path)
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": os.path.join(BUILD, "simcuda"),
                   "LD_PRELOAD": os.path.join(BUILD, "libgpucache.so"), "GPUCACHE_REPORT": report,
                   "GPUCACHE_LEDGER": os.path.join(base, "ledger"), "GPUCACHE_TENANT": "server", "SIMCUDA_MEMORY": "4GiB",
                   "GPUCACHE_TENANTS": "one=libtenant-one.so:60MiB,two=libtenant-two.so:80MiB,never=libnever.so:1g"}
    environment.update(settings)
    # pylint: disable-next=consider-using-with # it ends at a command
    process = subprocess.Popen([os.path.join(BUILD, "tests/preload/tenants"), "shown", *objects], env=environment,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def end(process):
    """Lets it go on to its end."""
    process.stdin.close()
    process.stdout.close()
    return process.wait(60)


def check_figures(base):
    """The figures of top are the report's, and the program's."""
    report = os.path.join(base, "report.json")
    process = start(base, report)
    status, out, error = tool(base, "top", "--once", "--json")
    equal("top", (status, error), (0, ""))
    shown = {tenant["name"]: tenant for tenant in json.loads(out)["processes"][0]["tenants"]}
    _, text, _ = tool(base, "top", "--once")
    equal("the program ends well", end(process), 0)
    with open(report, encoding="utf-8") as stream:
        reported = {tenant["name"]: tenant for tenant in json.load(stream)["devices"][0]["tenants"]}
    equal("top: those that were used", sorted(shown), ["one", "two"])
    equal("the report: the same", sorted(reported), ["one", "two"])
    for name, blocks, limit in (("one", 2, 60), ("two", 4, 80)):
        device = shown[name]["devices"][0]
        equal(f"{name}: one device", len(shown[name]["devices"]), 1)
        equal(f"{name}: what the program holds", reported[name]["requested_bytes"]["current"], blocks * BLOCK)
        equal(f"{name}: the limit", (reported[name]["limit_bytes"], device["limit_bytes"]), (limit * MIB, limit * MIB))
        equal(f"{name}: top as the report", {key: device[f"{key}_bytes"] for key in GAUGES},
              {key: reported[name][f"{key}_bytes"]["current"] for key in GAUGES})
        equal(f"{name}: the peak", device["peak_reserved_bytes"], reported[name]["reserved_bytes"]["peak"])
        equal(f"{name}: allocations are hits or misses", reported[name]["alloc_count"],
              reported[name]["hit_count"] + reported[name]["miss_count"])
        ok(f"{name}: allocated and freed", reported[name]["alloc_count"] == reported[name]["free_count"] + blocks, reported[name])
        ok(f"{name}: a row of its own", any({"tenant", name} <= set(line.split()) for line in text.splitlines()), text)
    equal("two: refused once", reported["two"]["oom_count"], 1)


def check_text(base):
    """The report for people has a line for each."""
    report = os.path.join(base, "report.txt")
    equal("a text report: ends well", end(start(base, report)), 0)
    with open(report, encoding="utf-8") as stream:
        lines = [line.split() for line in stream]
    equal("a text report: a line for each", [line for line in lines if line[:1] in (["one"], ["two"])],
          [["one", "60.0", "MiB", "30.0", "MiB", "30.0", "MiB", "20.0", "MiB", "0"],
           ["two", "80.0", "MiB", "40.0", "MiB", "40.0", "MiB", "40.0", "MiB", "1"]])


def main():
    """All of it; ends with 1 if anything failed."""
    for check in (check_figures, check_text):
        with tempfile.TemporaryDirectory(prefix="gpucache-tenants.") as base:
            check(base)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
