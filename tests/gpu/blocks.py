#!/usr/bin/env python3
"""Runs a block of experiments.py on a GPU, or on the simulated device with GPU_REHEARSAL=1.

usage: blocks.py [--allow-missing] [--check] BLOCK RESULTS [EXPERIMENT...]    --check: looks at the words alone

Ends by its own clock: a job has its limit and the time that the jobs before it left, and keeps the limits of the jobs
behind it free. Prints each job's time as it ends and the tables last; leaves block-BLOCK.json, .md (the tables) and .log in
RESULTS (of some experiments alone: block-BLOCK-EXPERIMENTS). An assumption is WRONG, holds, is not shown (a job failed, or
lacks what it needs), or does not apply here.

Exit status: 0 all hold; 1 a job failed or was late, or an assumption is wrong; 2 usage; 3 an assumption is not shown or a job
lacks what it needs, unless --allow-missing.
"""
import fnmatch
import glob
import json
import os
import signal
import subprocess
import sys
import time

from experiments import ALLOWED, ASSUMPTIONS, BLOCK_S, BLOCKS, FIGURES, LIBRARIES, MEASURED, PAIRS

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD_DIR", os.path.join(ROOT, "build"))
IS_REHEARSAL = os.environ.get("GPU_REHEARSAL", "0") != "0"
LOG_BYTES_MAX = 1 << 20  # of a job's output
FAILURES_SHOWN = 3


def library(setting):
    return os.path.join(BUILD, "without-events" if setting.startswith("eventless") else "", "libgpucache.so")


def command(job):
    """The job's words; or its status and the reason why it cannot run."""
    first, *rest = job.command.split()
    seconds = "0.4" if IS_REHEARSAL else "4" if "SECONDS" in rest else "2"
    if LIBRARIES[job.library] is not None and not os.path.exists(library(job.library)):
        return "not built", f"{library(job.library)} was not built"
    if first.endswith(".py"):
        python = os.environ.get("GPU_PYTHON", "python3")
        words = {"LIBRARY": [library("cache")], "PROGRAM": [os.path.join(BUILD, "tests/gpu/patterns"), "many", seconds]}
        return [python, os.path.join(ROOT, "tests/gpu/python", first), *sum((words.get(word, [word]) for word in rest), [])]
    path = os.path.join(BUILD, "tests/gpu", first)
    if first == "device_launch" and IS_REHEARSAL:
        return "skipped", "the simulated device's kernels launch none"
    if not os.path.exists(path):
        return ("missing", "there is no nvcc here") if first == "device_launch" else ("not built", f"{path} was not built")
    return [path, *(seconds if word == "SECONDS" else word for word in rest)]


def environment(job):
    variables = dict({name: value for name, value in os.environ.items() if not name.startswith("GPUCACHE_")},
                     **job.variables)
    if IS_REHEARSAL:
        variables.update(GPU_SHORT="1", SIMCUDA_MEMORY=os.environ.get("SIMCUDA_MEMORY", "141GiB"))
        places = [os.path.join(BUILD, "simcuda"), os.environ.get("GPU_LIBRARIES", "")]
        variables["LD_LIBRARY_PATH"] = ":".join(filter(None, places))
        if job.name.startswith("process_memory"):  # seen by the simulated NVML of another process
            variables["SIMCUDA_SHARED"] = f"rehearsal-{os.getpid()}"
    if LIBRARIES[job.library] is not None:
        variables.update(LIBRARIES[job.library], LD_PRELOAD=library(job.library))
    return variables


def read_lines(output, result):
    """The lines `row`, `skip` and `missing` of a job's output."""
    for line in output.splitlines():
        words = line.split(None, 2)
        if len(words) != 3 or words[0] not in ("row", "skip", "missing"):
            continue
        value, _, unit = words[2].partition(" ")
        try:
            if words[0] == "row":
                result["rows"][words[1]] = [float(value), unit]
            else:
                result["skips" if words[0] == "skip" else "missing"][words[1]] = words[2]
        except ValueError:  # no line of ours
            pass


def run(job, limit, log):
    """The job's result: status, seconds, rows, what it skipped, what was missing. A late one is killed with its children."""
    words = command(job)
    result = {"experiment": job.experiment, "name": job.name, "status": "ok", "seconds": 0.0, "rows": {}, "skips": {},
              "missing": {}}
    if isinstance(words, tuple):
        result[{"skipped": "skips"}.get(words[0], "missing")]["*"] = words[1]
        return dict(result, status=words[0])
    if limit < 3:
        return dict(result, status="no time", missing={"*": "the block's time was over"})
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
    log.write(f"==== {job.experiment} {job.name}: {result['status']}, {result['seconds']} s\n{output[-LOG_BYTES_MAX:]}\n")
    log.flush()
    read_lines(output, result)
    if result["status"] == "ok" and not result["rows"]:
        result["status"] = "missing" if result["missing"] else "skipped" if result["skips"] else "no rows"
    return result


def has_failed(result):
    return result["status"] not in ("ok", "skipped", "missing")


# ---- assumptions ----

def listed(texts):
    texts = list(texts)
    return ", ".join(texts[:FAILURES_SHOWN]) + (f" and {len(texts) - FAILURES_SHOWN} more" if len(texts) > FAILURES_SHOWN
                                                 else "")


def verdict_of(seen, wrong, unshown, skipped):
    """Nothing is shown by a job that failed, and nothing holds that was not seen."""
    if wrong:
        return "WRONG", listed(wrong)
    if unshown:
        return "not shown", listed(unshown)
    if seen:
        return "holds", ""
    if skipped:
        return "does not apply", listed(dict.fromkeys(reason.split(": ", 1)[1] for reason in skipped))
    return "not shown", "no row"


def absences(result, pattern):
    """(reasons why the job shows no row of the pattern, reasons why there is none to show)"""
    if has_failed(result):
        return [f"{result['name']}: {result['status']}"], []
    if any(fnmatch.fnmatchcase(row, pattern) for row in result["rows"]):
        return [], []
    meets = lambda other: fnmatch.fnmatchcase(pattern, other) or fnmatch.fnmatchcase(other, pattern)
    return [[f"{result['name']}: {reason}" for other, reason in result[kind].items() if meets(other)]
            for kind in ("missing", "skips")]


def judge(assumption, results):
    job_pattern, row_pattern = assumption.row.split(":")
    seen, unshown, skipped = {}, [], []
    for result in results:
        if result["experiment"] != assumption.experiment or not fnmatch.fnmatchcase(result["name"], job_pattern):
            continue
        seen.update({f"{result['name']}:{row}": value for row, (value, _) in result["rows"].items()
                     if fnmatch.fnmatchcase(row, row_pattern)})
        for reasons, more in zip((unshown, skipped), absences(result, row_pattern)):
            reasons.extend(more)
    wrong = {row: value for row, value in seen.items() if not assumption.holds(value)}
    verdict, reason = verdict_of(seen, [f"{row} = {value:g}" for row, value in wrong.items()], unshown, skipped)
    return {"experiment": assumption.experiment, "verdict": verdict, "text": assumption.text, "file": assumption.file,
            "wanted": assumption.holds.text, "rows": len(seen), "wrong": wrong, "reason": reason}


def judge_pair(pair, results):
    """Rows, values and codes alike, must be the same in both jobs, but for those that ALLOWED gives a reason for."""
    experiment, without, beneath, pattern, file = pair
    found = {result["name"]: result for result in results}
    sides = [found.get(name, {"name": name, "status": "not run", "rows": {}, "skips": {}, "missing": {}})
             for name in (without, beneath)]
    left, right = ({row: value for row, (value, _) in side["rows"].items() if fnmatch.fnmatchcase(row, pattern)}
                   for side in sides)
    unshown, skipped = (sum(reasons, []) for reasons in zip(*(absences(side, pattern) for side in sides)))
    wrong, allowed = {}, {}
    for row in sorted(set(left) | set(right)):
        values = left.get(row), right.get(row)
        if values[0] == values[1]:
            continue
        reasons = [reason for job, rows, condition, reason in ALLOWED
                   if fnmatch.fnmatchcase(beneath, job) and fnmatch.fnmatchcase(row, rows)
                   and (condition is None or None not in values and condition(*values))]
        (allowed if reasons else wrong)[row] = [*values, *reasons]
    as_text = lambda value: "no row" if value is None else f"{value:g}"
    shown = [f"{row}: {as_text(values[0])}, under it {as_text(values[1])}" for row, values in wrong.items()]
    verdict, reason = verdict_of(left and right, [] if unshown or skipped else shown, unshown, skipped)
    return {"experiment": experiment, "verdict": verdict, "text": f"{beneath} shows what {without} shows ({pattern})",
            "file": file, "wanted": "the same", "rows": len(set(left) & set(right)), "wrong": wrong, "allowed": allowed,
            "reason": reason}


# ---- tables ----

def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]


def jobs_table(results):
    rows = []
    for result in results:
        reasons = "; ".join(f"{kind} {', '.join(name for name, other in result[key].items() if other == reason)}: {reason}"
                            for kind, key in (("without", "skips"), ("missing", "missing"))
                            for reason in dict.fromkeys(result[key].values()))
        rows.append([result["experiment"], result["name"], f"{result['seconds']:.1f}", len(result["rows"]),
                     result["status"] + (f" ({reasons})" if reasons else "")])
    return table(["experiment", "job", "seconds", "rows", "result"], rows)


def assumptions_table(verdicts):
    rows = []
    for verdict in verdicts:
        reason = f": {verdict['reason']}" if verdict["reason"] else ""
        wanted = f"; wanted {verdict['wanted']}" if verdict["wrong"] else ""
        rows.append([verdict["experiment"], verdict["text"], verdict["rows"], verdict["verdict"] + reason + wanted,
                     verdict["file"]])
        allowed = dict.fromkeys(values[2] for values in verdict.get("allowed", {}).values())
        if allowed and verdict["verdict"] == "holds":
            rows[-1][3] += f", but for {len(verdict['allowed'])} rows: {'; '.join(allowed)}"
    return table(["experiment", "assumption", "rows", "verdict", "file that relies on it"], rows)


def figures_of(figure, results):
    """The rows of the jobs as a table: a line for each `row`, a column for each `column` of the figure's expression."""
    lines, units, used = {}, {}, set()
    for result in results:
        if result["experiment"] != figure.experiment or not fnmatch.fnmatchcase(result["name"], figure.jobs):
            continue
        for name, (value, unit) in result["rows"].items():
            match = figure.rows.fullmatch(name)
            if match is None:
                continue
            parts = match.groupdict()
            line = parts.get("row") or result["name"]
            column = parts.get("column") or "once"
            units.setdefault(column, set()).add(unit)
            lines.setdefault(line, {}).setdefault(column, []).append(value)
            used.add((result["name"], name))
    if not lines:
        return [], used
    columns = list(units)
    if all(unit == units[columns[0]] and len(unit) == 1 for unit in units.values()):  # one unit for all
        titles, first = columns, f"{figure.first}, {next(iter(units[columns[0]]))}"
    else:
        titles, first = [f"{column}, {'/'.join(sorted(units[column]))}" for column in columns], figure.first
    cell = lambda values: " … ".join(f"{value:.4g}" for value in values)
    rows = [[line, *(cell(cells.get(column, [])) for column in columns)] for line, cells in lines.items()]
    return ["", f"{figure.experiment}: {figure.title}", "", *table([first, *titles], rows)], used


def figures(results):
    lines, used = [], set()
    for figure in FIGURES:
        more, rows = figures_of(figure, results)
        lines += more
        used |= rows
    rest = []
    for result in results:  # whatever was measured and is in no table above
        values = [f"{name} {value:.4g} {unit}" for name, (value, unit) in result["rows"].items()
                  if unit in MEASURED and (result["name"], name) not in used]
        if values:
            rest.append([result["experiment"], result["name"], "; ".join(values)])
    return lines + (["", *table(["experiment", "job", "figures"], rest)] if rest else [])


def said_by(words):
    try:
        return subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=20, check=False).stdout.strip()[:400]
    except (OSError, subprocess.SubprocessError):
        return ""


def commit():
    """The commit that this tree is: by GPU_COMMIT, by the packed build, or by git, with a + if the tree has changes."""
    named = os.environ.get("GPU_COMMIT", "")
    packed = os.path.join(ROOT, "build/gpu-carry/commit")
    if not named and os.path.exists(os.path.join(ROOT, ".git")):
        changes = said_by(["git", "status", "--porcelain", "--untracked-files=no"])
        named = said_by(["git", "rev-parse", "HEAD"]) + ("+" if changes else "")
    if not named and os.path.exists(packed):
        with open(packed, encoding="utf-8") as file:
            named = file.read().strip()
    return named


def machine():
    """What the machine says of itself; the first lines of each."""
    return {"gpu": said_by(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]),
            "kernel": said_by(["uname", "-srm"]), "compiler": said_by([os.environ.get("CC", "gcc"), "--version"]),
            "nvcc": said_by(["nvcc", "--version"]), "commit": commit(), "is_rehearsal": IS_REHEARSAL}


def document(report):
    """The page of a block: the machine, then the tables."""
    told = report["machine"]
    lines = [f"# Block {report['block']}: {report['text']}", "",
             *table(["", ""], [["machine", told["gpu"].replace("\n", "; ") or "the simulated device"],
                               ["kernel", told["kernel"]], ["compiler", told["compiler"].split("\n")[0]],
                               ["commit", told["commit"] or "unknown"], ["command", f"`{report['command']}`"],
                               ["begun", report["begun"]], ["seconds", report["seconds"]]]),
             "", "## Figures", *figures(report["jobs"]), "", "## Assumptions", "", *assumptions_table(report["assumptions"]),
             "", "## Jobs", "", *jobs_table(report["jobs"])]
    return "\n".join(lines) + "\n"


def save(path, text):
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    flags = [word for word in sys.argv[1:] if word.startswith("--")]
    if len(words) < 2 or words[0] not in BLOCKS or set(flags) - {"--allow-missing", "--check"}:
        print(__doc__ + f"\nBlocks: {', '.join(BLOCKS)}.", file=sys.stderr)
        sys.exit(2)
    name, folder, wanted = words[0], words[1], words[2:]
    text, minutes, jobs = BLOCKS[name]
    there = sorted({job.experiment for job in jobs}, key=lambda word: int(word[1:]))
    unknown = set(wanted) - set(there)
    if unknown:
        print(f"blocks.py: block {name} has no {', '.join(sorted(unknown))}; it has {', '.join(there)}", file=sys.stderr)
        sys.exit(2)
    if "--check" in flags:
        return
    jobs = [job for job in jobs if not wanted or job.experiment in wanted]
    start = time.monotonic()
    whole = float(os.environ.get("GPU_BLOCK_SECONDS", BLOCK_S))
    results = []
    print(f"block {name}: {text}; some {minutes} minutes on a GPU", flush=True)
    report = {"schema": "gpucache-gpu/2", "block": "-".join([name, *wanted]), "text": text, "is_complete": False,
              "command": os.environ.get("GPU_COMMAND", " ".join(["scripts/gpu.sh", name, *wanted])),
              "begun": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": machine()}
    path = os.path.join(folder, "-".join([f"block-{name}", *wanted]))
    with open(path + ".log", "w", encoding="utf-8") as log:
        for at, job in enumerate(jobs):
            left = whole - (time.monotonic() - start)
            spare = left - sum(later.limit_s for later in jobs[at:])
            results.append(run(job, min(left, job.limit_s + max(0, min(spare, 2 * job.limit_s))), log))
            last = results[-1]
            print(f"{time.monotonic() - start:6.1f} s  {job.experiment} {job.name}: {last['status']}, {len(last['rows'])} rows",
                  flush=True)
            save(path + ".json", json.dumps(dict(report, jobs=results)))  # what is known if the block is killed
    for shared in glob.glob(f"/dev/shm/simcuda-*-rehearsal-{os.getpid()}"):
        os.remove(shared)
    experiments = {job.experiment for job in jobs}
    names = {job.name for job in jobs}
    verdicts = [judge(row, results) for row in ASSUMPTIONS if row.experiment in experiments
                and fnmatch.filter(names, row.row.split(":")[0])]
    verdicts += [judge_pair(pair, results) for pair in PAIRS if pair[2] in names]
    report.update(seconds=round(time.monotonic() - start, 1), is_complete=True, jobs=results, assumptions=verdicts)
    save(path + ".json", json.dumps(report, indent=1))
    save(path + ".md", document(report))
    print("\n".join(["", *jobs_table(results), "", *assumptions_table(verdicts), *figures(results), ""]))
    failed = [result["name"] for result in results if has_failed(result)]
    of = lambda word: [verdict for verdict in verdicts if verdict["verdict"] == word]
    for verdict in of("WRONG"):  # again, where they are read first
        print(f"WRONG {verdict['experiment']}, {verdict['file']}: {verdict['text']}: {verdict['reason']}")
    missing = sum(result["status"] == "missing" for result in results)
    skipped = sum(result["status"] == "skipped" for result in results)
    print(f"block {name}: {report['seconds']} s, {len(results)} jobs, {len(failed)} failed, {missing} missing, {skipped} "
          f"skipped; {len(verdicts)} assumptions, {len(of('holds'))} hold, {len(of('WRONG'))} wrong, "
          f"{len(of('not shown'))} not shown, {len(of('does not apply'))} do not apply")
    if failed or of("WRONG"):
        sys.exit(1)
    sys.exit(3 if (missing or of("not shown")) and "--allow-missing" not in flags else 0)


if __name__ == "__main__":
    main()
