#!/usr/bin/env python3
"""Takes the results of scripts/gpu.sh's blocks into the project. usage: collect.py RESULTS [ROOT]

Each block-N.json becomes docs/measurements/DATE-DEVICE-block-N.json; the rows of `costs` become the latency profile
tests/simcuda/driver/latency_h200.def, entries without a row keep theirs. A rehearsal is refused: it measures no GPU.
"""
import datetime
import glob
import json
import os
import re
import sys

from blocks import ROOT, latency_lines

results, root = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ROOT
paths = sorted(glob.glob(os.path.join(results, "block-*.json")))
if not paths:
    sys.exit(f"collect.py: no block-*.json in {results}")
for path in paths:
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    machine = report["machine"]
    if machine["is_rehearsal"]:
        sys.exit(f"collect.py: {path} is a rehearsal on the simulated device, no measurement")
    device = re.sub(r"[^a-z0-9]+", "-", machine["gpu"].split(",")[0].lower()).strip("-")
    day = datetime.datetime.fromtimestamp(os.path.getmtime(path)).strftime("%Y-%m-%d")
    to = os.path.join(root, "docs/measurements", f"{day}-{device}-block-{report['block']}.json")
    with open(to, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    print(to)
    rows = next((job["rows"] for job in report["jobs"] if job["name"] == "costs.none"), {})
    new = latency_lines(rows)
    if not new or "h200" not in device:
        continue
    profile = os.path.join(root, "tests/simcuda/driver/latency_h200.def")
    with open(profile, encoding="utf-8") as file:
        old = [line for line in file.read().splitlines() if line.startswith("SIM_LATENCY(")]
    entry = lambda line: line.split("(")[1].split(",")[0]
    measured = {entry(line) for line in new}
    kept = [line for line in old if entry(line) not in measured]
    with open(profile, "w", encoding="utf-8") as file:
        file.write(f"/* SIM_LATENCY(entry, microseconds): host time of calls, the profile `h200`, by scripts/gpu.sh collect.\n"
                   f" * Measured on {day}: {machine['gpu']}; medians of tests/gpu/costs, with blocks and handles of 2 MiB.\n"
                   f" * {len(kept)} entries at the end were not measured. */\n" + "\n".join(new + kept) + "\n")
    print(profile)
