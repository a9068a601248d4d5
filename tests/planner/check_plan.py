"""Checks a plan without anything of the project: what overlaps, what is misplaced, whether the figures are true.

usage: check_plan.py PLAN.json [PROBLEM.csv] [--alignment N]
"""
import csv
import json
import sys


def overlaps(placements):
    """Two placements that share a byte at one time, or None: a sweep over time with the live ones kept by address."""
    events = []
    for index, item in enumerate(placements):
        if item["bytes"] > 0:
            events.append((item["lower"], 1, index))
            events.append((item["upper"], 0, index))
    events.sort()
    live = {}
    for time, begins, index in events:
        item = placements[index]
        if not begins:
            del live[index]
            continue
        for other in live:
            there = placements[other]
            if item["offset"] < there["offset"] + there["bytes"] and there["offset"] < item["offset"] + item["bytes"]:
                return index, other, time
        live[index] = True
    return None


def live_peak(placements):
    """The most bytes that are alive at one time: no placement is lower."""
    changes = {}
    for item in placements:
        changes[item["lower"]] = changes.get(item["lower"], 0) + item["bytes"]
        changes[item["upper"]] = changes.get(item["upper"], 0) - item["bytes"]
    live = peak = 0
    for time in sorted(changes):
        live += changes[time]
        peak = max(peak, live)
    return peak


def reused(placements):
    """For each placement those whose bytes it takes over: the last ones there before it, byte by byte."""
    order = sorted(range(len(placements)), key=lambda index: (placements[index]["lower"], index))
    runs = []  # (begin, end, owner), in no order
    result = [set() for _ in placements]
    for index in order:
        begin = placements[index]["offset"]
        end = begin + placements[index]["bytes"]
        if begin == end:
            continue
        kept = []
        for first, last, owner in runs:
            if first >= end or last <= begin:
                kept.append((first, last, owner))
                continue
            result[index].add(owner)
            if first < begin:
                kept.append((first, begin, owner))
            if last > end:
                kept.append((end, last, owner))
        kept.append((begin, end, index))
        runs = kept
    return result


def check(plan, alignment=1):
    """Raises AssertionError, with what is wrong."""
    placements = plan["placements"]
    assert len(placements) == plan["buffers"], "as many placements as buffers"
    for item in placements:
        assert item["lower"] < item["upper"], f"{item['id']} has no time"
        assert item["offset"] % alignment == 0, f"{item['id']} is not aligned"
    found = overlaps(placements)
    assert found is None, f"overlap: {found}"
    peak = max((item["offset"] + item["bytes"] for item in placements), default=0)
    assert plan["peak_bytes"] == peak, f"the peak is {peak}, not {plan['peak_bytes']}"
    bound = live_peak(placements)
    assert bound <= plan["lower_bound_bytes"] <= peak, f"lower bound {plan['lower_bound_bytes']}, live {bound}"
    assert not plan["optimal"] or plan["peak_bytes"] >= plan["lower_bound_bytes"]
    assert plan["optimal"] or peak > plan["lower_bound_bytes"], "at the bound, and not marked optimal"
    assert abs(plan["ratio"] - (peak / plan["lower_bound_bytes"] if plan["lower_bound_bytes"] else 1)) < 1e-3
    if len(placements) <= 3000:
        want = reused(placements)
        for index, item in enumerate(placements):
            assert set(item["reuses"]) == want[index], f"{item['id']} reuses {item['reuses']}, not {want[index]}"
            assert len(item["reuses"]) == len(set(item["reuses"]))


def check_problem(plan, path):
    """The plan is one of this problem."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], int(row["lower"]), int(row["upper"]), int(row["size"])) for row in rows] == [
        (item["id"], item["lower"], item["upper"], item["bytes"]) for item in plan["placements"]
    ], "another problem"
    assert plan["total_bytes"] == sum(int(row["size"]) for row in rows)
    for row, item in zip(rows, plan["placements"]):
        if row.get("offset"):
            assert int(row["offset"]) == item["offset"], f"{row['id']} was moved"
        if row.get("alignment") not in (None, "", "0"):
            assert item["offset"] % int(row["alignment"]) == 0, f"{row['id']} is not aligned"


def main(arguments):
    alignment = 1
    if "--alignment" in arguments:
        at = arguments.index("--alignment")
        alignment = int(arguments[at + 1])
        del arguments[at : at + 2]
    with open(arguments[0], encoding="utf-8") as file:
        plan = json.load(file)
    check(plan, alignment)
    if len(arguments) > 1:
        check_problem(plan, arguments[1])


if __name__ == "__main__":
    main(sys.argv[1:])
