#!/usr/bin/env python3
"""Takes the results of scripts/gpu.sh's blocks into the project.

usage: collect.py [--profile] FOLDER [ROOT]

Each block-*.json becomes docs/measurements/DATE-DEVICE-block-N.json, beside it a page with its tables, and a line in the
folder's README.md. A second run of a day gets a number; a rehearsal, a block that was cut short and one without a GPU's name
are refused, and then nothing is taken. Costs measured on an H200 become the latency profile
tests/simcuda/driver/latency_h200.def, entries without a row keep theirs; --profile takes another device's costs as well.
"""
import glob
import json
import os
import re
import sys

from blocks import ROOT, document
from experiments import LATENCIES

README = "docs/measurements/README.md"
PROFILE = "tests/simcuda/driver/latency_h200.def"


def device_of(report):
    return report["machine"]["gpu"].split("\n")[0].split(",")[0].strip()


def fault_of(report):
    """Why the report is no measurement; None if it is one."""
    if report.get("schema") != "gpucache-gpu/2":
        return f"has the schema {report.get('schema')}, wanted gpucache-gpu/2"
    if report["machine"]["is_rehearsal"]:
        return "is a rehearsal on the simulated device, no measurement"
    if not report.get("is_complete"):
        return "was cut short: run the block again"
    if not device_of(report):
        return "names no GPU: nvidia-smi said nothing"
    return None


def read_reports(folder):
    reports = []
    for path in sorted(glob.glob(os.path.join(folder, "block-*.json"))):
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        fault = fault_of(report)
        if fault:
            sys.exit(f"collect.py: {path} {fault}; nothing was taken")
        reports.append(report)
    if not reports:
        sys.exit(f"collect.py: no block-*.json in {folder}")
    if len({device_of(report) for report in reports}) > 1:
        sys.exit(f"collect.py: {folder} has results of several devices; nothing was taken")
    return reports


def take(report, root):
    """Writes the report and its page under a name of their own, the folder's line for them."""
    text = json.dumps(report, indent=1) + "\n"
    device = re.sub(r"[^a-z0-9]+", "-", device_of(report).lower()).strip("-")
    name = f"{report['begun'][:10]}-{device}-block-{report['block']}"
    base, number = os.path.join(root, "docs/measurements", name), 1
    while os.path.exists(f"{base}.json"):
        with open(f"{base}.json", encoding="utf-8") as file:
            if file.read() == text:
                print(f"{base}.json is there already")
                return
        number += 1
        base = os.path.join(root, "docs/measurements", f"{name}-{number}")
    with open(f"{base}.json", "w", encoding="utf-8") as file:
        file.write(text)
    with open(f"{base}.md", "w", encoding="utf-8") as file:
        file.write(document(report))
    page = os.path.basename(base)
    with open(os.path.join(root, README), encoding="utf-8") as file:
        lines = file.read().split("\n")
    last = max(at for at, line in enumerate(lines) if line.startswith("| ["))
    lines.insert(last + 1, f"| [{page}.md]({page}.md) | {report['text']} | `{report['command']}` |")
    with open(os.path.join(root, README), "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    print(f"{base}.json\n{base}.md")


def write_profile(reports, root):
    rows = {(job["name"], row): value for report in reports for job in report["jobs"] if job["status"] == "ok"
            for row, (value, _) in job["rows"].items()}
    new = [f"SIM_LATENCY({entry}, {rows[row]:.3g})" for entry, row in LATENCIES.items() if row in rows]
    if not new:
        return
    path = os.path.join(root, PROFILE)
    with open(path, encoding="utf-8") as file:
        old = [line for line in file.read().splitlines() if line.startswith("SIM_LATENCY(")]
    entry = lambda line: line.split("(")[1].split(",")[0]
    kept = [line for line in old if entry(line) not in {entry(line) for line in new}]
    gpu = reports[0]["machine"]["gpu"].split("\n")[0]
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"/* SIM_LATENCY(entry, microseconds): host time of calls, the profile `h200`, by scripts/gpu.sh collect.\n"
                   f" * Measured on {reports[0]['begun'][:10]}: {gpu}; medians of tests/gpu/costs with blocks and handles of\n"
                   f" * 2 MiB; cuMemSetAccess and cuMemUnmap for each handle of a run, by tests/gpu/runs.\n"
                   f" * {len(kept)} entries at the end were not measured. */\n" + "\n".join(new + kept) + "\n")
    print(path)


def main():
    words = [word for word in sys.argv[1:] if word != "--profile"]
    if len(words) not in (1, 2) or words[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    root = words[1] if len(words) > 1 else ROOT
    reports = read_reports(words[0])
    for report in reports:
        take(report, root)
    if "h200" in device_of(reports[0]).lower() or "--profile" in sys.argv:
        write_profile(reports, root)
    else:
        print(f"The latency profile h200 stays as it is: these costs are of {device_of(reports[0])}. Run blocks 1 and 3 on an "
              "H200, or take these with --profile; the profile's head then names the device.")


if __name__ == "__main__":
    main()
