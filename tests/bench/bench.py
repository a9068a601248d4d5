#!/usr/bin/env python3
"""Measures what an allocation costs through the library on the simulated device, beside other allocators in the
same run: mimalloc, the C library's malloc, a best-fit tree behind one mutex, the library without caching (`track`).

usage: tests/bench/bench.py [--build DIR] [--output FILE] [--baseline FILE] [--smoke] [--strict] [--only GROUP,...]

Prints `name value unit` lines as they come, then the ratios that the project is judged by, and leaves both in
BUILD/bench.json. A figure is the median of several rounds, and where programs are compared of several runs of each in
turn. --smoke runs everything very short: its figures mean nothing. Groups: steps sizes group threads live loop replay.

The rows of the table stand beside those of the baseline, docs/measurements/bench.json, which is such a file that was kept.
Each row has a kind. `count`: a figure of ours that machines and their other work do not move; worse if NEAR times as large.
`time`: a ratio of two of our times in this run; worse if FAR times as large, and as its goal. `bound`: worse if its goal is missed. `shown`: another
allocator's figure, or the driver's, is in it, and nothing is judged. A group with a worse row is measured again, up to twice,
since others may have worked beside it, and each row keeps its best. A row that is worse all the same is a regression: exit status 1.
A smoke run only marks it, but for --strict.
"""
import argparse
import collections
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import handles

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCHEMA = "gpucache-bench/1"
GROUPS = ("steps", "sizes", "group", "threads", "live", "loop", "replay")
CURRENT = "cuCtxGetCurrent"
SIZES = ("pair_512B", "pair_64KiB", "pair_4MiB", "pair_mixed")
MIMALLOC = "libmimalloc.so.2"
BASELINE = os.path.join(ROOT, "docs", "measurements", "bench.json")
FAR = 1.5  # times that ratios of times differ by from run to run where others work beside
NEAR = 1.1  # the same for counts, which differ by what compilers make of the sources
LIMITS = {"time": FAR, "count": NEAR}
AGAIN = 2  # times that a group is measured once more
EVENTS_TIMED = 10000  # a shorter trace's time is noise
SHORT = 1.02  # a limit, in peaks of live bytes


class Failed(Exception):
    """A program of the benchmark did not do its work."""


class Bench:
    """One run: its settings, the programs, and their output."""

    def __init__(self, build, smoke):
        self.build = os.path.abspath(build)
        self.smoke = smoke
        self.repeats = 1 if smoke else 3
        self.results = {}
        self.ratios = []
        self.group_name = None
        self.folder = tempfile.TemporaryDirectory(prefix="gpucache-bench.")
        self.allocators = self._allocators()

    # ---- programs ----

    def _allocators(self):
        """name -> (program, environment)"""
        library = {"LD_PRELOAD": os.path.join(self.build, "libgpucache.so"), "GPUCACHE_REPORT": "none",
                   "GPUCACHE_LEDGER": os.path.join(self.folder.name, "ledger")}
        group = dict(library, GPUCACHE_GROUP="bench", GPUCACHE_GROUP_LIMIT="8GiB")
        found = {
            "shared": ("pairs_shared", library),
            "grouped": ("pairs_shared", group),
            "static": ("pairs_static", library),
            "driver": ("pairs_driver", library),
            "track": ("pairs_shared", dict(library, GPUCACHE_MODE="track")),
            "glibc": ("pairs_malloc", {}),
        }
        if self._has_mimalloc():
            found["mimalloc"] = ("pairs_malloc", {"LD_PRELOAD": MIMALLOC})
        else:
            print(f"# no {MIMALLOC}: nothing is compared with mimalloc (make deps installs it)")
        if os.path.exists(self.path("tests/bench/pairs_tree")):
            found["tree"] = ("pairs_tree", {})
        else:
            print("# no C++ compiler: nothing is compared with the best-fit tree")
        return found

    def path(self, name):
        """A file of the build folder."""
        return os.path.join(self.build, name)

    def _has_mimalloc(self):
        # The loader reports it on stderr, and goes on, where there is no such library.
        done = subprocess.run(["true"], env={"LD_PRELOAD": MIMALLOC, "PATH": os.environ["PATH"]},
                              capture_output=True, check=False)
        return not done.stderr

    def run(self, command, settings):
        """Runs a program on the simulated device; its standard output."""
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith(("GPUCACHE_", "SIMCUDA_", "LD_", "BENCH_", "CUDA_"))}
        environment["LD_LIBRARY_PATH"] = self.path("simcuda")
        if self.smoke:
            environment.update(BENCH_ROUNDS="3", BENCH_ROUND_US="200")
        environment.update(settings)
        done = subprocess.run([self.path(command[0]), *command[1:]], env=environment, text=True,
                              capture_output=True, timeout=60, check=False)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
        return done.stdout

    def pairs(self, name, *arguments, **settings):
        """What one allocator's program prints: {figure: (value, unit)}."""
        program, environment = self.allocators[name]
        output = self.run([f"tests/bench/{program}", *arguments], dict(environment, **settings))
        rows = [line.split() for line in output.splitlines()]
        return {figure: (float(value), unit) for figure, value, unit in rows}

    # ---- results ----

    def put(self, name, value, unit):
        """A figure: kept, and printed."""
        self.results[name] = (value, unit)
        print(f"{name} {value:.10g} {unit}", flush=True)

    def value(self, name):
        """A figure, or None if it was not measured."""
        return self.results.get(name, (None, None))[0]

    def compare(self, names, *arguments, pick=statistics.median):
        """Runs each allocator in turn, several times, so that a noisy moment hits all alike."""
        seen = {}
        for _ in range(self.repeats):
            for name in names:
                if name not in self.allocators:
                    continue
                for figure, (value, unit) in self.pairs(name, *arguments).items():
                    seen.setdefault((f"{name}.{figure}", unit), []).append(value)
        for (name, unit), values in seen.items():
            self.put(name, pick(values), unit)

    # ---- groups ----

    def measure(self, group):
        """One group."""
        self.group_name = group
        getattr(self, group)()

    def steps(self):
        """Instructions of what a program calls most, one by one: what a feature that is off costs would show here."""
        library = self.allocators["shared"][1]
        trace = os.path.join(self.folder.name, "trace")
        # name: what, settings, how often. A stack takes many steps, and is the same each time.
        kinds = {"off": ("pair", library, 64), "runtime": ("runtime", library, 64), "mixed": ("mixed", library, 64),
                 "layers": ("layers", library, 128), "launch": ("launch", library, 16), "traced": ("pair", dict(library, GPUCACHE_TRACE=trace), 64),
                 "track": ("pair", dict(library, GPUCACHE_MODE="track"), 16),
                 "stacks": ("pair", dict(library, GPUCACHE_STACKS="leaks"), 4), "plain": ("pair", {}, 16),
                 "plain_launch": ("launch", {}, 16), "start": ("start", library, 1), "plain_start": ("start", {}, 1)}
        if self.smoke:  # a whole process is a million steps
            del kinds["start"], kinds["plain_start"]
        for name, (what, settings, count) in kinds.items():
            count = max(1, count // 16) if self.smoke else count
            output = self.run(["tests/bench/steps", what, str(count)], settings)
            _, mean, _, _, median = output.split()
            self.put(f"steps.{name}", float(median if what == "launch" else mean), "instructions")
        for name, goal in (("off", "<= 400"), ("runtime", ""), ("mixed", ""), ("layers", ""), ("traced", ""), ("stacks", "")):
            self.goal(f"instructions: {name}", self.value(f"steps.{name}"), goal, "count")
        for name, of, goal in (("track", "plain", "<= 1840"), ("launch", "plain_launch", "<= 75"), ("start", "plain_start", "")):
            if name in kinds:
                self.goal(f"instructions: the library's, {name}", self.value(f"steps.{name}") - self.value(f"steps.{of}"), goal, "count")

    def sizes(self):
        """One thread, by size."""
        self.compare(("shared", "static", "driver", "track", "mimalloc", "glibc", "tree"), "sizes")
        for against, goal in (("mimalloc", "<= 2"), ("tree", "")):
            for size in SIZES:
                self.ratio(f"shared/{against} {size}", f"shared.{size}", f"{against}.{size}", goal, "shown")
        for size in SIZES[1:]:
            self.ratio(f"shared {size}/512B", f"shared.{size}", "shared.pair_512B", "", "time")
        self.goal("shared pair_512B, ns", self.value("shared.pair_512B"), "<= 40", "shown")

    def group(self):
        """One thread, in a group with a limit and without: the least of many, for they differ by little."""
        self.repeats, kept = 1 if self.smoke else 9, self.repeats
        self.compare(("shared", "grouped"), "sizes", pick=min)
        self.repeats = kept
        for size in SIZES:
            self.ratio(f"grouped/shared {size}", f"grouped.{size}", f"shared.{size}", "<= 1.05", "time")

    def threads(self):
        """One to N threads."""
        most = min(os.cpu_count() or 1, 8)
        for count in sorted({1, 2, 4, most} & set(range(1, most + 1))):
            self.compare(("shared", "mimalloc", "tree"), "threads", str(count), pick=max)
        if most == 1:
            print("# one processor: two threads are not measured")
            return
        for name in ("shared", "mimalloc", "tree"):
            self.ratio(f"{name}: 2 threads/1", f"{name}.threads_2_512B", f"{name}.threads_1_512B",
                       *((">= 1.8", "time") if name == "shared" else ("", "shown")))

    def live(self):
        """100 to a million live blocks."""
        most = 10000 if self.smoke else 1000000
        counts = [count for count in (100, 10000, 100000, 1000000) if count <= most]
        for count in counts:
            self.compare(("shared", "mimalloc", "tree"), "live", str(count))
        for figure, goal, kind in (("pair", "<= 2", "time"), ("replace", "", "shown")):  # the other follows the processor's caches
            for name in ("shared", "mimalloc", "tree"):
                self.ratio(f"{name}: {figure} with {most} live/100", f"{name}.{figure}_live_{most}",
                           f"{name}.{figure}_live_100", *((goal, kind) if name == "shared" else ("", "shown")))
        report = os.path.join(self.folder.name, "live.json")
        self.pairs("shared", "live", str(most), GPUCACHE_REPORT=report)
        self.put("shared.metadata_per_block", device_of(report)["host_metadata_bytes"] / most, "bytes")
        self.goal(f"metadata bytes per block, {most} live", self.value("shared.metadata_per_block"),
                  "" if self.smoke else "<= 128", "count")

    def loop(self):
        """Allocate, launch, free, on two streams: time, driver calls, memory."""
        library = self.allocators["shared"][1]
        count = 200 if self.smoke else 5000
        for name, settings in (("library", library), ("plain", {})):
            output = self.run(["tests/bench/launch_loop", str(count)], dict(settings, SIMCUDA_WORK_US="5"))
            self.put(f"loop.{name}", float(output.split()[1]), "ns")
        count *= 4  # by then the memory that covers the work under way is there
        once, twice = (self.calls(library, n) for n in (count, 2 * count))
        # Which context is current is thread-local to the driver: asked each time, it costs no work.
        query_count = (twice.pop(CURRENT, 0) - once.pop(CURRENT, 0)) * 100 / count
        self.put("loop.driver_calls", max(0, sum(twice.values()) - sum(once.values())) * 100 / count, "per_100_iterations")
        self.put("loop.current_context_asked", query_count, "per_100_iterations")
        self.goal("loop: driver calls per 100 iterations", self.value("loop.driver_calls"), "<= 20", "bound")
        self.ratio("loop: library/plain", "loop.library", "loop.plain", "", "shown")
        for many, name in ((count, "short"), (4 * count, "long")):
            report = os.path.join(self.folder.name, "loop.json")
            self.run(["tests/bench/launch_loop", str(many)], dict(library, GPUCACHE_REPORT=report))
            self.put(f"loop.reserved_{name}", device_of(report)["reserved_bytes"]["peak"], "bytes")
        self.ratio("loop: reserved, four times as long/once", "loop.reserved_long", "loop.reserved_short", "", "shown")

    def calls(self, library, count):
        """Calls that reached the driver in a loop of `count`, by name, its launches left out."""
        journal = os.path.join(self.folder.name, f"journal.{count}")
        self.run(["tests/bench/launch_loop", str(count)], dict(library, SIMCUDA_JOURNAL=journal))
        with open(journal, encoding="utf-8") as stream:
            names = collections.Counter(line.split()[2] for line in stream)
        del names["cuLaunchKernel"]
        return names

    def replay(self):
        """The recorded traces, where they are available, and made ones; the recorded ones short of memory as well."""
        made = handles.traces_make.KINDS
        for name, path in handles.traces(self.folder.name).items():
            figures = handles.measure(self.build, path, None)
            cache, plain = figures["cache"], figures["plain"]
            whole = self.smoke or figures["peak_live_bytes"] < 1 << 30
            for figure, value, unit in (("ratio", cache["ratio"], "x"), ("driver_calls", cache["calls"][0], "in_pass_1"),
                                        ("event", min(cache["ns"][1:]), "ns"), ("plain_event", plain["ns"][1], "ns")):
                self.put(f"replay.{name}.{figure}", value, unit)
            self.goal(f"{name}: reserved/live", cache["ratio"], "" if whole else "<= 1.03", "count")
            self.goal(f"{name}: handles a GiB", cache["handles_per_gib"], "" if whole else "<= 100", "count")
            self.goal(f"{name}: driver time, pass 1/plain", cache["ms"][0] / plain["ms"][0], "<= 0.5" if name not in made else "<= 1", "count")
            self.goal(f"{name}: driver time, passes 3, 4/plain", sum(cache["ms"][2:]) / 2 / plain["ms"][0], "<= 0", "count")
            if plain["calls"][0] > EVENTS_TIMED:
                self.goal(f"{name}: an event/one without the cache", min(cache["ns"][1:]) / min(plain["ns"]), "", "shown")
            if plain["refused"][0] == 0 and name not in made and not self.smoke:
                self.short(name, path)

    def short(self, name, path):
        """A trace with hardly more memory than is live."""
        figures = handles.measure(self.build, path, SHORT)
        cache, plain = figures["cache"], figures["plain"]
        self.goal(f"{name}, limit {SHORT}: refused, beyond plain", max(0, max(cache["refused"]) - plain["refused"][0]), "<= 0", "bound")
        self.goal(f"{name}, limit {SHORT}: driver time, 4 passes/plain", sum(cache["ms"]) / 4 / plain["ms"][0], "<= 1", "time")

    # ---- ratios ----

    def ratio(self, name, above, below, wanted, kind):
        """A ratio of two figures, where both were measured."""
        upper, lower = self.value(above), self.value(below)
        if upper is not None and lower:
            self.goal(name, upper / lower, wanted, kind)

    def goal(self, name, value, wanted, kind):
        """A row of the table: `wanted` is "<= N", ">= N" or nothing. Measured again, the better one is kept."""
        if value is None:
            return
        row = {"name": name, "value": round(value, 4), "goal": wanted or None, "reached": None, "kind": kind, "group": self.group_name}
        kept = next((other for other in self.ratios if other["name"] == name), None)
        if kept is not None:
            more_is_better = wanted.startswith(">=")
            if (row["value"] > kept["value"]) != more_is_better:
                return
            self.ratios.remove(kept)
        if wanted:
            sign, bound = wanted.split()
            row["reached"] = value <= float(bound) if sign == "<=" else value >= float(bound)
        self.ratios.append(row)

    def print_table(self):
        """All ratios."""
        print(f"\n{'ratio':<56}{'value':>10}  {'to reach':<9}")
        for row in self.ratios:
            mark = {True: "reached", False: "not reached", None: ""}[row["reached"]]
            print(f"{row['name']:<56}{row['value']:>10.3f}  {row['goal'] or '':<9} {mark}".rstrip())

    def compare_with(self, before):
        """The rows that are worse than in the baseline, or miss a bound."""
        for row in self.ratios:
            row["baseline"] = before.get(row["name"])
            row["worse"] = is_worse(row)
        return [row for row in self.ratios if row["worse"]]

    def measure_again(self, before):
        """The groups of what is worse, while anything is."""
        for _ in range(0 if self.smoke else AGAIN):
            groups = {row["group"] for row in self.compare_with(before)}
            for group in sorted(groups):
                print(f"# {group} once more: something is worse than in the baseline")
                self.measure(group)

    def print_changes(self, path, before):
        """All ratios beside those of a record that was kept; how many are worse."""
        worse = len(self.compare_with(before))
        print(f"\n{'judged, against ' + os.path.relpath(path):<56}{'now':>10}{'then':>10}{'now/then':>10}  kind")
        for row in self.ratios:
            now, then = row["value"], row["baseline"]
            if row["kind"] != "shown":
                known = f"{then:>10.3f}" if then is not None else f"{'-':>10}"
                change = f"{now / then:.2f}" if then else "-"
                print(f"{row['name']:<56}{now:>10.3f}{known}{change:>10}  {row['kind']}{'  worse' if row['worse'] else ''}")
        missing = sorted(set(before) - {row["name"] for row in self.ratios})
        if missing:
            print(f"# of the baseline's rows {len(missing)} were not measured: {'; '.join(missing)}")
        print(f"{worse} worse (counts by more than {NEAR} times, times by more than {FAR}, or a bound is missed)"
              f"{'; a smoke run proves nothing' if self.smoke else ''}")
        return worse

    def record(self, seconds):
        """What bench.json holds."""
        results = [{"name": name, "value": value, "unit": unit} for name, (value, unit) in self.results.items()]
        return {"schema": SCHEMA, "smoke": self.smoke, "machine": machine(), "seconds": round(seconds, 1),
                "results": results, "ratios": self.ratios}


def is_worse(row):
    """Whether a row is far worse than it was, a ratio of times also than its goal; a count that was 0 has to stay so."""
    now, then = row["value"], row["baseline"]
    if row["kind"] == "bound":
        return not row["reached"]
    if row["kind"] not in LIMITS or then is None:
        return False
    sign, goal = (row["goal"] or "<= 0").split()
    if row["kind"] == "time":
        then = min(then, float(goal)) if sign == ">=" else max(then, float(goal))
    if sign == ">=":
        return now * LIMITS[row["kind"]] < then
    return now > then * LIMITS[row["kind"]]


def read_baseline(path):
    """The judged rows of a record that was kept: {name: value}."""
    with open(path, encoding="utf-8") as stream:
        kept = json.load(stream)
    if kept.get("schema") != SCHEMA:
        raise Failed(f"its schema is {kept.get('schema')}, not {SCHEMA}")
    return {row["name"]: row["value"] for row in kept["ratios"] if row.get("kind") != "shown"}


def device_of(report):
    """The first device of a report file."""
    with open(report, encoding="utf-8") as stream:
        return json.load(stream)["devices"][0]


def machine():
    """What this ran on."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            model = next(line.split(":", 1)[1].strip() for line in stream if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {"processor": model, "processors": os.cpu_count(), "kernel": platform.release(),
            "load": round(os.getloadavg()[0], 2)}


def main():
    """Runs the groups asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--output")
    parser.add_argument("--baseline", default=BASELINE)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--strict", action="store_true", help="a smoke run too fails where something is worse")
    parser.add_argument("--only", default=",".join(GROUPS))
    arguments = parser.parse_args()
    groups = arguments.only.split(",")
    for group in groups:
        if group not in GROUPS:
            parser.error(f"no group {group}; there are: {' '.join(GROUPS)}")
    start = time.monotonic()
    status = 0
    before = {}
    try:
        before = read_baseline(arguments.baseline)
    except (Failed, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"bench: {arguments.baseline}: no baseline: {error}", file=sys.stderr)
        status = 1
    bench = Bench(arguments.build, arguments.smoke)
    try:
        for group in groups:
            bench.measure(group)
        bench.measure_again(before)
    except (Failed, OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    bench.print_table()
    if bench.print_changes(arguments.baseline, before) > 0 and (arguments.strict or not arguments.smoke):
        status = 1
    output = arguments.output or bench.path("bench.json")
    with open(output, "w", encoding="utf-8") as stream:
        json.dump(bench.record(time.monotonic() - start), stream, indent=2)
        stream.write("\n")
    print(f"\n{time.monotonic() - start:.0f} s, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors; {output}")
    return status


if __name__ == "__main__":
    sys.exit(main())
