"""The exports of a run, against the native trace and the JSON report. usage: exports.py FOLDER"""
import collections
import csv
import io
import json
import os
import pickle
import pickletools
import shutil
import subprocess
import sys

import native_trace
import tap

FOLDER = os.path.abspath(sys.argv[1])
TRACE = os.path.join(FOLDER, "trace")
TOOL = tap.TOOL
# What the viewer's own unpickler knows, and the sizes it takes.
VIEWER_OPCODES = set("""PROTO STOP MARK EMPTY_DICT SETITEMS SETITEM DICT EMPTY_LIST APPENDS APPEND LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2
    TUPLE3 NEWTRUE NEWFALSE NONE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE BINPUT LONG_BINPUT BINGET LONG_BINGET
    MEMOIZE FRAME""".split())


def export(source, *options):
    done = subprocess.run([TOOL, "trace", source, *options], capture_output=True, timeout=60, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{options}: {done.stderr.decode()}")
    return done.stdout


def replayed(path, *options):
    done = subprocess.run([TOOL, "replay", path, "--json", "--passes", "1", *options], capture_output=True, timeout=60, check=False)
    if done.returncode not in (0, 3):
        raise AssertionError(done.stderr.decode())
    return json.loads(done.stdout)


def strict(text):
    """JSON with no key twice and no number that is none."""
    def pairs(items):
        keys = [key for key, _ in items]
        if len(set(keys)) != len(keys):
            raise AssertionError(f"a key twice: {keys}")
        return dict(items)

    def refuse(text):
        raise AssertionError(f"no number: {text}")
    return json.loads(text, object_pairs_hook=pairs, parse_constant=refuse)


# ---- Perfetto ----

REQUIRED = {"M": {"name", "pid", "args"}, "C": {"name", "pid", "ts", "args"}, "b": {"name", "cat", "id", "pid", "tid", "ts", "args"},
            "e": {"name", "cat", "id", "pid", "tid", "ts"}, "i": {"name", "pid", "tid", "ts", "s"}}


def check_perfetto(trace, text):
    root = strict(text)
    tap.equal(set(root), {"traceEvents", "displayTimeUnit", "otherData"}, "keys")
    first = next(r[7] for r in trace.records if r[0] <= native_trace.OOM)
    curves = collections.defaultdict(list)
    levels = collections.defaultdict(list)
    open_slices = {}
    slices = 0
    last = 0
    for event in root["traceEvents"]:
        missing = REQUIRED[event["ph"]] - set(event)
        if missing:
            raise AssertionError(f"{missing} is missing in {event}")
        if event["ts"] < last:
            raise AssertionError(f"time goes back at {event}")
        last = event["ts"]
        if event["ph"] == "C":
            tap.equal(list(event["args"]), ["bytes"], "a counter has one series")
            (curves if event["name"] == "live" else levels)[event["pid"] - 1, event["name"]].append(event["args"]["bytes"])
        elif event["ph"] == "b":
            key = event["cat"], event["id"], event["pid"]
            if key in open_slices:
                raise AssertionError(f"begun twice: {event}")
            open_slices[key] = event
            slices += 1
        elif event["ph"] == "e":
            begin = open_slices.pop((event["cat"], event["id"], event["pid"]))
            life = LIVES[id(trace)][event["id"] - 1]
            tap.equal((begin["name"], event["name"]), (trace.names[life.api],) * 2, "names")
            tap.equal(begin["args"]["bytes"], life.bytes, "bytes")
            tap.equal(int(begin["args"]["address"], 16), life.address, "address")
            tap.equal(round(begin["ts"] * 1000), life.begin_ns - first, "begin")
            tap.equal(event.get("args", {}).get("freed"), None if life.end_ns else "never", "freed")
            if life.end_ns:
                tap.equal(round(event["ts"] * 1000), life.end_ns - first, "end")
    tap.equal(open_slices, {}, "slices that never end")
    tap.equal(slices, len(LIVES[id(trace)]), "slices")
    for device in {life.device for life in LIVES[id(trace)]}:
        tap.equal(curves[device, "live"], native_trace.live_curve(trace, device), "live bytes")
        recorded = [r for r in trace.records if r[0] == native_trace.LEVELS and r[1] == device]
        tap.equal(levels[device, "reserved"], [r[4] for r in recorded], "reserved bytes")
        tap.equal(levels[device, "pending"], [r[5] for r in recorded], "pending bytes")
        tap.equal(levels[device, "limit"], [r[6] for r in recorded if r[6] != native_trace.NO_LIMIT], "limit")


def perfetto_counters_and_slices_are_those_of_the_trace(_):
    check_perfetto(RUN, export(TRACE, "--perfetto"))
    tap.equal(len({r[1] for r in RUN.records}), 2, "devices")


def perfetto_out_file_is_what_is_printed(folder):
    path = os.path.join(folder, "out.json")
    tap.equal(export(TRACE, "--perfetto", path), b"", "printed")
    with open(path, "rb") as stream:
        tap.equal(stream.read(), export(TRACE, "--perfetto"), "the file")


# ---- PyTorch ----

SEGMENT_KEYS = {"device": int, "address": int, "total_size": int, "allocated_size": int, "active_size": int, "requested_size": int,
                "stream": int, "segment_type": str, "segment_pool_id": tuple, "is_expandable": bool, "frames": list, "blocks": list}
BLOCK_KEYS = {"address": int, "size": int, "requested_size": int, "state": str, "frames": list}
FRAME_KEYS = {"filename": str, "line": int, "name": str}
EVENT_KEYS = {"action": str, "size": int, "stream": int, "time_us": int, "frames": list}


class Plain(pickle.Unpickler):
    """Values only: whoever names a class or calls something is refused."""

    def find_class(self, module, name):
        raise AssertionError(f"the pickle wants {module}.{name}")


def has_keys(value, keys, *more):
    tap.equal(set(value), set(keys) | set(more), "keys")
    for key, kind in keys.items():
        if type(value[key]) is not kind:
            raise AssertionError(f"{key} is {value[key]!r}")
    for frame in value.get("frames", ()):
        has_keys(frame, FRAME_KEYS)


def load_snapshot(data):
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in VIEWER_OPCODES or (opcode.name == "PROTO" and argument > 4):
            raise AssertionError(f"the viewer does not know {opcode.name} {argument}")
    snapshot = Plain(io.BytesIO(data)).load()
    has_keys(snapshot, {"segments": list, "device_traces": list})
    for segment in snapshot["segments"]:
        has_keys(segment, SEGMENT_KEYS)
        at = segment["address"]
        for block in segment["blocks"]:
            has_keys(block, BLOCK_KEYS)
            tap.equal(block["address"], at, "blocks tile their segment")
            at += block["size"]
        tap.equal(at, segment["address"] + segment["total_size"], "and end where it ends")
    for history in snapshot["device_traces"]:
        for event in history:
            has_keys(event, EVENT_KEYS, "device_free" if event["action"] == "oom" else "addr")
    return snapshot


class Segments:
    """Segments by address, going back in time as the viewer does."""

    def __init__(self, segments):
        self.ranges = {s["address"]: s["total_size"] for s in segments}

    def containing(self, address):
        return next((a for a, size in self.ranges.items() if a <= address < a + size), None)

    def undo(self, event):
        address, size, action = event["addr"], event["size"], event["action"]
        if action == "segment_free":
            self.ranges[address] = size
        elif action == "segment_alloc":
            tap.equal(self.ranges.pop(address), size, "the segment that came")
        elif action == "segment_unmap":
            after = self.ranges.pop(address + size, 0)
            before = next((a for a, s in self.ranges.items() if a + s == address), None)
            if before is None:
                self.ranges[address] = size + after
            else:
                self.ranges[before] += size + after
        elif action == "segment_map":
            begin = self.containing(address)
            whole = self.ranges.pop(begin)
            if address > begin:
                self.ranges[begin] = address - begin
            if begin + whole > address + size:
                self.ranges[address + size] = begin + whole - address - size


def check_history(snapshot, device):
    """Back to the start: every block is in a segment all the time, and there was nothing in the beginning. Returns the most live bytes."""
    segments = Segments([s for s in snapshot["segments"] if s["device"] == device])
    blocks = {b["address"]: b["requested_size"] for s in snapshot["segments"] if s["device"] == device for b in s["blocks"]
              if b["state"] == "active_allocated"}
    live = peak = sum(blocks.values())
    for event in reversed(snapshot["device_traces"][device]):
        action = event["action"]
        if action == "free_completed":
            blocks[event["addr"]] = event["size"]
            live += event["size"]
            if segments.containing(event["addr"]) is None:
                raise AssertionError(f"a block in no segment: {event}")
        elif action == "alloc":
            tap.equal(blocks.pop(event["addr"]), event["size"], "the block that came")
            live -= event["size"]
        elif action.startswith("segment_"):
            segments.undo(event)
        elif action not in ("free_requested", "oom"):
            raise AssertionError(f"an action the viewer does not know: {action}")
        peak = max(peak, live)
    tap.equal((blocks, segments.ranges), ({}, {}), "before the first event")
    return peak


def pickle_goes_back_to_nothing_as_the_viewer_does(folder):
    path = os.path.join(folder, "snapshot.pickle")
    export(TRACE, "--pickle", path)
    with open(path, "rb") as stream:
        snapshot = load_snapshot(stream.read())
    tap.equal(len(snapshot["device_traces"]), 2, "histories")
    actions = {event["action"] for history in snapshot["device_traces"] for event in history}
    tap.equal({"alloc", "free_requested", "free_completed", "segment_map", "segment_alloc", "segment_free", "oom"} - actions, set(), "seen")
    for device in range(2):
        tap.equal(check_history(snapshot, device), max(native_trace.live_curve(RUN, device)), "peak of live bytes")
        allocs = [e for e in snapshot["device_traces"][device] if e["action"] == "alloc"]
        mine = [life for life in LIVES[id(RUN)] if life.device == device]
        tap.equal([(e["addr"], e["size"], e["frames"][0]["name"]) for e in allocs],
                  [(life.address, life.bytes, RUN.names[life.api]) for life in mine], "allocations")
        kept = sorted(b["address"] for s in snapshot["segments"] if s["device"] == device for b in s["blocks"]
                      if b["state"] == "active_allocated")
        tap.equal(kept, sorted(life.address for life in mine if life.end_ns is None), "live at the end")


def exports_replay_as_the_trace_does(folder):
    for device in ("0", "1"):
        want = replayed(TRACE, "--device", device)
        path = os.path.join(folder, "snapshot.pickle")
        export(TRACE, "--pickle", path)
        got = replayed(path, "--device", device)
        for key in ("events", "peak_live_bytes", "peak_reserved_bytes", "ratio"):
            tap.equal(got[key], want[key], f"pickle, device {device}: {key}")
    # Rows know no device: those of both together.
    figures = []
    for option in ("--csv", "--rmm"):
        path = os.path.join(folder, "out" + option)
        export(TRACE, option, path)
        figures.append({key: replayed(path)[key] for key in ("events", "peak_live_bytes")})
    tap.equal(figures[0], figures[1], "CSV and RMM log")
    tap.equal(figures[0]["events"], sum(replayed(TRACE, "--device", d)["events"] for d in ("0", "1")), "events")


# ---- RMM ----

def rmm_log_is_what_its_reader_takes(_):
    rows = list(csv.DictReader(io.StringIO(export(TRACE, "--rmm").decode("ascii"))))
    tap.equal(list(rows[0]), ["Thread", "Time", "Action", "Pointer", "Size", "Stream"], "columns")
    live = {}
    seen = []
    start = RUN.start_unix % 86400
    first = next(r[7] for r in RUN.records if r[0] <= native_trace.OOM)
    wanted = iter([r for r in RUN.records if r[0] <= native_trace.OOM])
    for row in rows:
        hours, minutes, seconds, us = (int(part) for part in row["Time"].split(":"))
        record = next(wanted)
        since_us = (record[7] - first) // 1000
        tap.equal((hours * 3600 + minutes * 60 + seconds, us), ((start + since_us // 1000000) % 86400, since_us % 1000000), "time")
        pointer, size = int(row["Pointer"], 16), int(row["Size"])
        int(row["Stream"])
        tap.equal(int(row["Thread"]), record[3], "thread")
        if row["Action"] == "allocate":
            live[pointer] = size
            seen.append((pointer, size))
        elif row["Action"] == "free":
            tap.equal(live.pop(pointer), size, "a free names its size")
        else:
            tap.equal((row["Action"], record[0]), ("allocate failure", native_trace.OOM), "action")
    tap.equal(next(wanted, None), None, "rows")
    tap.equal(seen, [(life.address, life.bytes) for life in LIVES[id(RUN)]], "allocations")


# ---- Prometheus ----

def samples_of(text):
    from prometheus_client.parser import text_string_to_metric_families  # pylint: disable=import-outside-toplevel
    found = {}
    for family in text_string_to_metric_families(text):
        if not family.documentation or family.type == "unknown":
            raise AssertionError(f"{family.name} has no help or type")
        for sample in family.samples:
            key = sample.name, tuple(sorted((k, v) for k, v in sample.labels.items() if k not in ("program", "pid")))
            if key in found:
                raise AssertionError(f"twice: {key}")
            if not {"program", "pid"} <= set(sample.labels):
                raise AssertionError(f"whose is {sample}?")
            found[key] = sample.value
    return found


def prom_is_what_the_report_says(_):
    if PROMETHEUS_CLIENT is None:
        return "PyPI's prometheus_client could not be fetched"
    done = subprocess.run([TOOL, "report", os.path.join(FOLDER, "report.json"), "--prom"], capture_output=True, timeout=60, check=True)
    samples = samples_of(done.stdout.decode())
    with open(os.path.join(FOLDER, "report.json"), "rb") as stream:
        report = strict(stream.read())
    for device in report["devices"]:
        label = ("device", str(device["ordinal"]))
        for key, value in device.items():
            if key.endswith("_count") and key != "leak_count":
                tap.equal(samples.pop((f"gpucache_{key[:-6]}_total", (label,))), value, key)
            elif isinstance(value, dict) and set(value) == {"current", "peak"}:
                tap.equal(samples.pop((f"gpucache_{key}", (label,))), value["current"], key)
                tap.equal(samples.pop((f"gpucache_{key[:-6]}_peak_bytes", (label,))), value["peak"], key)
        for key, name in (("limit_bytes", "limit_bytes"), ("total_bytes", "memory_bytes"), ("leak_bytes", "leaked_bytes"),
                          ("leak_count", "leaked_allocations")):
            tap.equal(samples.pop(("gpucache_" + name, (label,)), None), device[key], key)
        for api, figures in device["by_api"].items():
            for key, name in (("count", "allocations_total"), ("bytes", "requested_bytes_total"), ("current_bytes", "live_bytes"),
                              ("peak_bytes", "live_peak_bytes")):
                tap.equal(samples.pop((f"gpucache_api_{name}", (("api", api), label))), figures[key], f"{api} {key}")
    tap.equal(samples[("gpucache_latency_seconds", (("operation", "alloc"), ("percentile", "99")))],
              report["latency_ns"]["alloc"]["p99"] / 1e9, "latency")


def prom_has_tenants_and_plans(_):
    """Of a run with tenants, and of the same report with a plan and a limit written into it."""
    if PROMETHEUS_CLIENT is None:
        return "PyPI's prometheus_client could not be fetched"
    with open(os.path.join(FOLDER, "tenants.json"), "rb") as stream:
        report = strict(stream.read())
    device = report["devices"][0]
    nothing = {"count": 0, "bytes": 0}
    device["plan"] = {"entries": 9, "peak_bytes": 1, "used_bytes": 1, "rounds": 1, "jumps": 0, "followed": {"count": 7, "bytes": 1},
                      "reasons": {"unmatched": {"count": 5, "bytes": 1}, **dict.fromkeys(("occupied", "pending", "capture", "memory"), nothing)}}
    path = os.path.join(FOLDER, "planned.json")
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(report, stream)
    text = subprocess.run([TOOL, "report", path, "--prom"], capture_output=True, timeout=60, check=True).stdout
    samples = samples_of(text.decode())
    if len(device["tenants"]) < 2:
        raise AssertionError("no tenants")
    for place, tenant in enumerate(device["tenants"]):
        labels = tuple(sorted((("device", str(device["ordinal"])), ("place", str(place)), ("tenant", tenant["name"]))))
        for name, want in (("reserved_bytes", tenant["reserved_bytes"]["current"]), ("reserved_peak_bytes", tenant["reserved_bytes"]["peak"]),
                           ("requested_bytes", tenant["requested_bytes"]["current"]), ("requested_peak_bytes", tenant["requested_bytes"]["peak"]),
                           ("limit_bytes", tenant["limit_bytes"]), ("alloc_total", tenant["alloc_count"]), ("oom_total", tenant["oom_count"])):
            tap.equal(samples.pop((f"gpucache_tenant_{name}", labels), None), want, f"{tenant['name']} {name}")
    for way, want in (("followed", 7), ("unmatched", 5), ("occupied", 0)):
        tap.equal(samples.pop(("gpucache_plan_allocations_total", (("device", "0"), ("way", way)))), want, way)
    tap.equal([key for key in samples if key[0].startswith("gpucache_tenant")], [], "more of tenants")
    promtool = shutil.which("promtool")
    if promtool is not None:
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
        tap.equal((done.returncode, done.stdout + done.stderr), (0, b""), "promtool")
    return None


def report_is_the_sum_of_the_trace(_):
    """Counts, bytes, peaks and leaks of the report, summed up anew from the records of the same run."""
    with open(os.path.join(FOLDER, "report.json"), "rb") as stream:
        report = strict(stream.read())
    tap.equal(len(report["devices"]), 2, "devices")
    for device in report["devices"]:
        mine = [life for life in LIVES[id(RUN)] if life.device == device["ordinal"]]
        kept = [life for life in mine if life.end_ns is None]
        tap.equal(device["alloc_count"], len(mine), "allocations")
        tap.equal(device["free_count"], len(mine) - len(kept), "frees")
        tap.equal(device["hit_count"] + device["miss_count"], len(mine), "from the cache and from the driver")
        tap.equal(device["requested_bytes"], {"current": sum(life.bytes for life in kept), "peak": max(native_trace.live_curve(RUN, device["ordinal"]))},
                  "requested")
        tap.equal(device["oom_count"], sum(1 for r in RUN.records if r[0] == native_trace.OOM and r[1] == device["ordinal"]), "without room")
        tap.equal((device["leak_count"], device["leak_bytes"]), (len(kept), sum(life.bytes for life in kept)), "leaks")
        tap.equal({(leak["address"], leak["bytes"]) for leak in device["leaks"]}, {(hex(life.address), life.bytes) for life in kept}, "each of them")
        levels = [r for r in RUN.records if r[0] == native_trace.LEVELS and r[1] == device["ordinal"]]
        tap.equal(device["reserved_bytes"]["peak"], max(r[4] for r in levels), "reserved")
        for name, api in device["by_api"].items():
            of = [life for life in mine if RUN.names[life.api] == name]
            if of:
                tap.equal((api["count"], api["bytes"], api["current_bytes"]), (len(of), sum(life.bytes for life in of),
                                                                              sum(life.bytes for life in of if life.end_ns is None)), name)


def contexts_that_end_take_their_memory_along(folder):
    """What was live in a destroyed context is freed to the trace, before its memory is gone."""
    path = os.path.join(FOLDER, "ended")
    trace = native_trace.Trace.read(path)
    LIVES[id(trace)] = native_trace.lives(trace)
    with open(path + ".json", "rb") as stream:
        report = strict(stream.read())
    for device in report["devices"]:
        kept = [life for life in LIVES[id(trace)] if life.device == device["ordinal"] and life.end_ns is None]
        tap.equal((sum(life.bytes for life in kept), len(kept)), (device["requested_bytes"]["current"], device["leak_count"]), "live at the end")
    ended = sum(1 for r in trace.records if r[0] == native_trace.FREE)
    if ended <= sum(device["free_count"] for device in report["devices"]):
        raise AssertionError("no context was destroyed with something live in it")
    check_perfetto(trace, export(path, "--perfetto"))
    export(path, "--pickle", os.path.join(folder, "pickle"))
    with open(os.path.join(folder, "pickle"), "rb") as stream:
        snapshot = load_snapshot(stream.read())
    for device in range(2):
        tap.equal(check_history(snapshot, device), max(native_trace.live_curve(trace, device)), "peak of live bytes")


def prom_of_the_library_is_that_of_the_tool(_):
    """Two runs of the same client: the names and labels are the same; so are counts of what it did."""
    if PROMETHEUS_CLIENT is None:
        return "PyPI's prometheus_client could not be fetched"
    done = subprocess.run([TOOL, "report", os.path.join(FOLDER, "report.json"), "--prom"], capture_output=True, timeout=60, check=True)
    with open(os.path.join(FOLDER, "report.prom"), encoding="utf-8") as stream:
        library = samples_of(stream.read())
    tool = samples_of(done.stdout.decode())
    tap.equal(set(library), set(tool), "samples")
    for key in library:
        if key[0] in ("gpucache_alloc_total", "gpucache_free_total", "gpucache_requested_peak_bytes"):
            tap.equal(library[key], tool[key], key)


def prom_follows_the_conventions(_):
    promtool = shutil.which("promtool")
    if promtool is None:
        return "promtool (Debian: prometheus) is not installed; scripts/deps.sh readers installs it"
    with open(os.path.join(FOLDER, "report.prom"), "rb") as stream:
        done = subprocess.run([promtool, "check", "metrics"], stdin=stream, capture_output=True, timeout=60, check=False)
    tap.equal((done.returncode, done.stdout + done.stderr), (0, b""), "promtool")
    return None


# ---- foreign names ----

HOSTILE = ['a"b\\c', "</script><script>alert(1)</script>", "new\nline", b"\xff\xfe not UTF-8", "größe", ""]


def hostile_names_stay_names(folder):
    records = []
    for i in range(len(HOSTILE)):
        records.append((native_trace.ALLOC, 0, i, 1, 0x1000 * (i + 1), 16, 0, 1000 * i))
    records.append((native_trace.FREE, 0, 0, 1, 0x1000, 0, (1 << 64) - 1, 1 << 62))
    trace = native_trace.Trace(HOSTILE, records)
    path = os.path.join(folder, "trace")
    trace.write(path)
    names = [e["name"] for e in strict(export(path, "--perfetto"))["traceEvents"] if e["ph"] == "b"]
    tap.equal(names, ['a"b\\c', HOSTILE[1], "new\nline", "\ufffd\ufffd not UTF-8", "größe", ""], "Perfetto")
    if b"</script" in export(path, "--perfetto"):
        raise AssertionError("a script could be closed")
    export(path, "--pickle", path + ".pickle")
    with open(path + ".pickle", "rb") as stream:
        history = load_snapshot(stream.read())["device_traces"][0]
    names = [e["frames"][0]["name"] for e in history if e["action"] == "alloc"]
    tap.equal(names, ['a"b\\c', HOSTILE[1], "new?line", "?? not UTF-8", "gr??e".replace("??e", "????e"), ""], "pickle")
    tap.equal(history[-1]["action"], "segment_free", "the end")


def version_1_and_an_empty_trace_export(folder):
    path = os.path.join(folder, "trace")
    native_trace.Trace(["cudaMalloc"], [(native_trace.ALLOC, 0, 0, 1, 4096, 100, 0, 5)]).write(path, version=1)
    old = native_trace.Trace(["cudaMalloc"], [(native_trace.ALLOC, 0, 0, 1, 4096, 100, 0, 5)])
    LIVES[id(old)] = native_trace.lives(old)
    check_perfetto(old, export(path, "--perfetto"))
    native_trace.Trace(["cudaMalloc"], []).write(path)
    tap.equal(strict(export(path, "--perfetto"))["traceEvents"], [], "no events")
    export(path, "--pickle", path + ".pickle")
    with open(path + ".pickle", "rb") as stream:
        tap.equal(load_snapshot(stream.read()), {"segments": [], "device_traces": []}, "no history")
    tap.equal(export(path, "--rmm"), b"Thread,Time,Action,Pointer,Size,Stream\n", "no rows")


RUN = native_trace.Trace.read(TRACE)
LIVES = {id(RUN): native_trace.lives(RUN)}
try:
    import prometheus_client as PROMETHEUS_CLIENT
except ImportError:
    PROMETHEUS_CLIENT = None

if __name__ == "__main__":
    sys.exit(tap.run([perfetto_counters_and_slices_are_those_of_the_trace, perfetto_out_file_is_what_is_printed,
                      pickle_goes_back_to_nothing_as_the_viewer_does, exports_replay_as_the_trace_does, rmm_log_is_what_its_reader_takes,
                      report_is_the_sum_of_the_trace, contexts_that_end_take_their_memory_along, prom_is_what_the_report_says, prom_has_tenants_and_plans, prom_of_the_library_is_that_of_the_tool, prom_follows_the_conventions,
                      hostile_names_stay_names, version_1_and_an_empty_trace_export]))
