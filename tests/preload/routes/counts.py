#!/usr/bin/env python3
"""Compares a report with what the program counted and with the simulated driver's journal.

usage: counts.py REPORT JOURNAL PROGRAM_COUNTS [--static-runtime]
Prints what differs, nothing if all agree.
 - by_api has the program's own counts. With a static runtime the program's cudaMalloc is the driver's cuMemAlloc_v2.
 - Every entry point in driver_calls was called as often as the journal has lines for it, and whatever allocates or frees
   in the journal is in driver_calls.
"""
import collections
import json
import re
import sys

# What a static runtime, which is part of the program, calls for each of its own entry points.
UNDER_STATIC_RUNTIME = {"cudaMalloc": "cuMemAlloc_v2", "cudaMallocPitch": "cuMemAllocPitch_v2",
                        "cudaMallocManaged": "cuMemAllocManaged", "cudaMallocAsync": "cuMemAllocAsync"}
MEMORY_ENTRY = re.compile(r"^cu(Mem(Alloc|Free|Create|Release)|Array3?D?(Create|Destroy)|MipmappedArray(Create|Destroy))")
HOST_ENTRY = re.compile(r"^cuMem(AllocHost|FreeHost|HostAlloc)")


def main():
    report_path, journal_path, program_counts = sys.argv[1:4]
    with open(report_path, encoding="utf-8") as stream:
        report = json.load(stream)
    journal = collections.Counter()
    with open(journal_path, encoding="utf-8") as stream:
        for line in stream:
            journal[line.split()[2]] += 1
    wrong = []

    by_api = collections.Counter()
    driver_calls = collections.Counter(report.get("driver_calls", {}))
    for device in report["devices"]:
        by_api.update({name: row["count"] for name, row in device["by_api"].items()})
        driver_calls.update(device["driver_calls"])
    for name, count in json.loads(program_counts).items():
        if "--static-runtime" in sys.argv:
            name = UNDER_STATIC_RUNTIME[name]
        if by_api[name] != count:
            wrong.append(f"by_api {name}: {by_api[name]}, the program made {count}")
    for name, count in sorted(driver_calls.items()):
        if journal[name] != count:
            wrong.append(f"driver_calls {name}: {count}, the journal has {journal[name]}")
    for name, count in sorted(journal.items()):
        if MEMORY_ENTRY.match(name) and not HOST_ENTRY.match(name) and name not in driver_calls:
            wrong.append(f"the journal has {count} of {name}, driver_calls none")
    if not any(MEMORY_ENTRY.match(name) for name in driver_calls):
        wrong.append("driver_calls has no allocation at all")
    print("\n".join(wrong))
    return 1 if wrong else 0


sys.exit(main())
