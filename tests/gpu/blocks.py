#!/usr/bin/env python3
"""Runs a block of experiments.py on a GPU, or on the simulated device with GPU_REHEARSAL=1.

usage: blocks.py BLOCK RESULTS [EXPERIMENT...]

Ends by its own clock: a job has its limit or what is left of the block, the less. Prints each job's time as it ends and
the tables last; leaves block-BLOCK.json and block-BLOCK.log in RESULTS. Exit status: 1 if a job failed or was late, or an
assumption is wrong.
"""
import fnmatch
import json
import os
import signal
import subprocess
import sys
import time

from experiments import ASSUMPTIONS, BLOCKS, LATENCIES, LIBRARIES, PAIRS

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD_DIR", os.path.join(ROOT, "build"))
BLOCK_S = 520  # nine minutes, less what the build and the table take
IS_REHEARSAL = os.environ.get("GPU_REHEARSAL", "0") != "0"


def library(setting):
    return os.path.join(BUILD, "without-events" if setting == "eventless" else "", "libgpucache.so")


def command(job):
    first, *rest = job.command.split()
    if LIBRARIES[job.library] is not None and not os.path.exists(library(job.library)):
        return f"{library(job.library)} was not built"
    if first == "device_launch":
        path = os.path.join(BUILD, "tests/gpu/device_launch")
        return [path] if os.path.exists(path) and not IS_REHEARSAL else f"{first}: no nvcc here, or a rehearsal"
    if first.endswith(".py"):
        python = os.environ.get("GPU_PYTHON", "python3")
        words = {"LIBRARY": [library("cache")], "PROGRAM": [os.path.join(BUILD, "tests/gpu/patterns"), "many", "2"]}
        return [python, os.path.join(ROOT, "tests/gpu/python", first), *sum((words.get(word, [word]) for word in rest), [])]
    return [os.path.join(BUILD, "tests/gpu", first), *("0.4" if IS_REHEARSAL and word == "SECONDS" else "8"
                                                       if word == "SECONDS" else word for word in rest)]


def environment(job):
    variables = dict({name: value for name, value in os.environ.items() if not name.startswith("GPUCACHE_")},
                     **job.variables)
    if IS_REHEARSAL:
        variables.update(GPU_SHORT="1", SIMCUDA_MEMORY=os.environ.get("SIMCUDA_MEMORY", "141GiB"))
        places = [os.path.join(BUILD, "simcuda"), os.environ.get("GPU_LIBRARIES", "")]
        variables["LD_LIBRARY_PATH"] = ":".join(filter(None, places))
    if LIBRARIES[job.library] is not None:
        variables.update(LIBRARIES[job.library], LD_PRELOAD=library(job.library))
    return variables


def run(job, seconds_left, log):
    """The job's result: status, seconds, rows, skips. A late one is killed with its children."""
    words = command(job)
    result = {"experiment": job.experiment, "name": job.name, "status": "ok", "seconds": 0.0, "rows": {}, "skips": {}}
    if isinstance(words, str):
        return dict(result, status="skipped", skips={"*": words})
    if os.path.isabs(words[0]) and not os.path.exists(words[0]):
        return dict(result, status="not built")
    limit = min(job.limit_s, seconds_left)
    if limit < 5:
        return dict(result, status="no time", skips={"*": "the block's time was over"})
    start = time.monotonic()
    process = subprocess.Popen(words, env=environment(job), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT,
                               text=True, errors="replace", start_new_session=True)
    try:
        output, _ = process.communicate(timeout=limit)
        if process.returncode != 0:
            result["status"] = f"status {process.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            output, _ = process.communicate(timeout=10)
        except subprocess.TimeoutExpired as stuck:  # in the driver, where no signal ends it
            output = (stuck.stdout or b"").decode(errors="replace") if isinstance(stuck.stdout, bytes) else stuck.stdout or ""
        result["status"] = f"late: over {limit:.0f} s"
    result["seconds"] = round(time.monotonic() - start, 2)
    log.write(f"==== {job.experiment} {job.name}: {result['status']}, {result['seconds']} s\n{output}\n")
    log.flush()
    for line in output.splitlines():
        words = line.split(None, 2)
        if len(words) == 3 and words[0] == "row":
            value, _, unit = words[2].partition(" ")
            result["rows"][words[1]] = [float(value), unit]
        elif len(words) == 3 and words[0] == "skip":
            result["skips"][words[1]] = words[2]
    if result["status"] == "ok" and not result["rows"]:
        result["status"] = "skipped" if result["skips"] else "no rows"
    return result


# ---- assumptions ----

def judge(assumption, results):
    job_pattern, row_pattern = assumption.row.split(":")
    jobs = [result for result in results if result["experiment"] == assumption.experiment
            and fnmatch.fnmatchcase(result["name"], job_pattern)]
    seen = {f"{result['name']}:{row}": value for result in jobs for row, (value, _) in result["rows"].items()
            if fnmatch.fnmatchcase(row, row_pattern)}
    wrong = {row: value for row, value in seen.items() if not assumption.holds(value)}
    verdict = "WRONG" if wrong else "holds" if seen else "no data"
    shown = ", ".join(f"{row} = {value:g}" for row, value in list(wrong.items())[:3])
    return {"experiment": assumption.experiment, "verdict": verdict, "text": assumption.text, "file": assumption.file,
            "wanted": assumption.holds.text, "rows": len(seen), "wrong": wrong,
            "seen": shown + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else "")}


def judge_pair(pair, results):
    experiment, without, beneath, pattern, file = pair
    rows = {result["name"]: result["rows"] for result in results}
    left, right = rows.get(without, {}), rows.get(beneath, {})
    both = [name for name in left if name in right and fnmatch.fnmatchcase(name, pattern)]
    wrong = {name: right[name][0] for name in both if left[name][0] != right[name][0]}
    shown = ", ".join(f"{name}: {left[name][0]:g}, under it {value:g}" for name, value in list(wrong.items())[:3])
    return {"experiment": experiment, "verdict": "WRONG" if wrong else "holds" if both else "no data",
            "text": f"{beneath} shows what {without} shows ({pattern})", "file": file, "wanted": "the same",
            "rows": len(both), "wrong": wrong, "seen": shown + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else "")}


# ---- tables ----

def show(results, verdicts):
    print("\n| experiment | job | seconds | rows | result |\n|---|---|---|---|---|")
    for result in results:
        skips = "; ".join(f"{name}: {reason}" for name, reason in result["skips"].items())
        print(f"| {result['experiment']} | {result['name']} | {result['seconds']:.1f} | {len(result['rows'])} "
              f"| {result['status']}{'; skipped ' + skips if skips else ''} |")
    print("\n| experiment | assumption | rows | verdict | file that relies on it |\n|---|---|---|---|---|")
    for verdict in verdicts:
        wrong = f": {verdict['seen']}; wanted {verdict['wanted']}" if verdict["wrong"] else ""
        print(f"| {verdict['experiment']} | {verdict['text']} | {verdict['rows']} | {verdict['verdict']}{wrong} "
              f"| {verdict['file']} |")


def machine():
    """What the machine says of itself; the first lines of each."""
    asked = {"gpu": ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
             "kernel": ["uname", "-srm"], "compiler": ["gcc", "--version"], "nvcc": ["nvcc", "--version"],
             "commit": ["git", "rev-parse", "HEAD"]}
    said = {}
    for name, words in asked.items():
        try:
            said[name] = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=20).stdout.strip()[:400]
        except (OSError, subprocess.SubprocessError):
            said[name] = ""
    return dict(said, is_rehearsal=IS_REHEARSAL)


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in BLOCKS:
        sys.exit(__doc__)
    name, folder, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]
    text, minutes, jobs = BLOCKS[name]
    jobs = [job for job in jobs if not wanted or job.experiment in wanted]
    start = time.monotonic()
    limit = float(os.environ.get("GPU_BLOCK_SECONDS", BLOCK_S))
    results = []
    print(f"block {name}: {text}; some {minutes} minutes on a GPU", flush=True)
    report = {"schema": "gpucache-gpu/1", "block": name, "machine": machine()}
    path = os.path.join(folder, f"block-{name}.json")
    with open(os.path.join(folder, f"block-{name}.log"), "w", encoding="utf-8") as log:
        for job in jobs:
            results.append(run(job, limit - (time.monotonic() - start), log))
            last = results[-1]
            print(f"{time.monotonic() - start:6.1f} s  {job.experiment} {job.name}: {last['status']}, {len(last['rows'])} rows",
                  flush=True)
            with open(path, "w", encoding="utf-8") as file:  # what is known if the block is killed
                json.dump(dict(report, jobs=results), file)
    experiments = {job.experiment for job in jobs}
    names = {job.name for job in jobs}
    verdicts = [judge(row, results) for row in ASSUMPTIONS if row.experiment in experiments
                and fnmatch.filter(names, row.row.split(":")[0])]
    verdicts += [judge_pair(pair, results) for pair in PAIRS if pair[2] in names]
    report.update(seconds=round(time.monotonic() - start, 1), jobs=results, assumptions=verdicts)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
    show(results, verdicts)
    failed = [result for result in results if result["status"] not in ("ok", "skipped")]
    wrong = [verdict for verdict in verdicts if verdict["verdict"] == "WRONG"]
    print(f"\nblock {name}: {report['seconds']} s, {len(results)} jobs, {len(failed)} failed, "
          f"{sum(result['status'] == 'skipped' for result in results)} skipped; {len(verdicts)} assumptions, {len(wrong)} wrong")
    sys.exit(1 if failed or wrong else 0)


def latency_lines(rows):
    """The lines of the latency profile, from the rows of `costs`."""
    return [f"SIM_LATENCY({entry}, {rows[row][0]:.3g})" for entry, row in LATENCIES.items() if row in rows]


if __name__ == "__main__":
    main()
