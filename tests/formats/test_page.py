#!/usr/bin/env python3
"""The report's page in headless Chromium: what stands in it and what it does.
timeout: 240"""
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
import native_trace
import page_case
import tap
from page_case import HOSTILE, PAGE, data_of, path, read_json, record, rows_of, show, size, tool

MILLION_STEPS = 1000100


# ---- what the data is ----

def stretches_have_the_least_and_the_most(_):
    """The page's series against the trace, which Python reads by itself."""
    record("stretched", 20000, ".json", seed=3)
    tool("trace", path("stretched"), "--html", path("stretched.html"))
    trace = native_trace.Trace.read(path("stretched"))
    shown = data_of("stretched.html")["sides"][0]["trace"]
    first = next(r[7] for r in trace.records if r[0] <= native_trace.OOM)
    duration = shown["duration_ns"]
    for device in shown["devices"]:
        series = device["series"]
        tap.equal(series["exact"], device["ordinal"] != 0 and len(series["time_ns"]) <= 4096 and "events" not in series, "exact")
        levels = {}
        now = {"live": 0, "reserved": 0}
        live = {}
        for op, of, _, _, address, number, _, time_ns in trace.records:
            gone = live.pop(address) if op in (native_trace.ALLOC, native_trace.FREE) and address in live else None
            changes = []
            if gone and gone[0] == device["ordinal"]:
                changes.append(("live", now["live"] - gone[1]))
            if op == native_trace.ALLOC:
                live[address] = (of, number)
                if of == device["ordinal"]:
                    changes.append(("live", now["live"] + number - (gone[1] if gone and gone[0] == of else 0)))
            if op == native_trace.LEVELS and of == device["ordinal"]:
                changes.append(("reserved", address))
            for name, value in changes:
                at = min(max(time_ns - first, 0), duration - 1) * 4096 // duration
                point = levels.setdefault(at, {key: [value_, value_] for key, value_ in now.items()})
                now[name] = value
                point[name] = [min(point[name][0], value), max(point[name][1], value)]
        if series["exact"]:
            continue
        wanted = [levels[at] for at in sorted(levels)]
        for name in ("live", "reserved"):
            tap.equal([list(pair) for pair in zip(series[name + "_least"], series[name + "_most"])], [point[name] for point in wanted], name)
        tap.equal(max(series["live_most"]), device["peak_bytes"], "the peak is in the picture")
        layers = levels_of(series)
        tap.equal([sum(row) for row in zip(*layers)], series["live_most"], "the layers are those of the moment with the most")
        if not all(at <= moment <= at + series["stretch_ns"] + 1 for at, moment in zip(series["time_ns"], series["layers_ns"])):
            raise AssertionError("moments outside their stretches")
    if all(device["series"]["exact"] for device in shown["devices"]):
        raise AssertionError("nothing was thinned out")


def levels_of(series):
    """The bytes of each layer at each point."""
    levels = []
    for changes in series["layers"]:
        changes = dict(zip(*[iter(changes)] * 2))
        level, at = [], 0
        for i in range(len(series["time_ns"])):
            at = changes.get(i, at)
            level.append(at)
        levels.append(level)
    return levels


def figures_of_the_trace_are_right(_):
    trace = native_trace.Trace.read(path("small"))
    lives = native_trace.lives(trace)
    shown = data_of("small.html")["sides"][0]["trace"]
    for device in shown["devices"]:
        mine = [life for life in lives if life.device == device["ordinal"]]
        tap.equal(device["peak_bytes"], max(native_trace.live_curve(trace, device["ordinal"])), "peak")
        sizes = {}
        for life in mine:
            sizes.setdefault(life.bytes.bit_length() - 1, []).append(life.bytes)
        tap.equal(device["sizes"], [[power, len(found), sum(found)] for power, found in sorted(sizes.items())], "sizes")
        ends = [life.end_ns - life.begin_ns for life in mine if life.end_ns is not None]
        tap.equal(sum(row[1] for row in device["lifetimes"]), len(ends), "lifetimes")
        tap.equal(device["lifetimes"][-1][0], max(max(ends), 1).bit_length() - 1, "the longest")
        tap.equal(sorted(leak["address"] for leak in device["leaks"]), sorted(hex(life.address) for life in mine if life.end_ns is None), "leaks")
        picture = next(p for p in shown["pictures"] if p["ordinal"] == device["ordinal"])
        tap.equal(sum(s["live_bytes"] for s in picture["segments"]), device["peak_bytes"], "the picture is that of the peak")
        tap.equal(sum(block[4] for s in picture["segments"] for block in s["blocks"]), device["peak_count"], "blocks")
        for segment in picture["segments"]:
            end = 0
            for offset, span, *_ in segment["blocks"]:
                if offset < end or offset + span > segment["bytes"]:
                    raise AssertionError(f"a block at {offset} in {segment}")
                end = offset + span
        tap.equal(device["failure_count"], sum(1 for r in trace.records if r[0] == native_trace.OOM and r[1] == device["ordinal"]), "failures")
        tap.equal(sum(number for _, number, _ in device["failures"]), device["failure_count"], "failures that are drawn")


def own_frame(stack):
    """The innermost frame of a Python file that is not installed; these stacks have one."""
    return next(i for i, frame in enumerate(stack) if ".py:" in frame and "/lib/python" not in frame)


def layers_and_blocks_are_right(_):
    """Sites, layers and blocks of the page against the trace, which Python reads by itself."""
    for name in ("small", "sites"):
        trace = native_trace.Trace.read(path(name))
        shown = data_of(name + ".html")["sides"][0]["trace"]
        frames = native_trace.stacks(trace)
        lives = native_trace.lives(trace)
        first = next(r[7] for r in trace.records if native_trace.ALLOC <= r[0] <= native_trace.OOM)
        keys = [(life.api, tuple(frames[number][own_frame(frames[number]):]) if number else ())
                for life, number in zip(lives, native_trace.stacks_of_lives(trace))]
        names = [(site["api"], tuple(shown["frames"][text] for text in site["stack"][site["own"]:])) for site in shown["sites"]]
        tap.equal(sorted(names), sorted(set(keys)), "call sites")
        for device in shown["devices"]:
            mine = [(life, key) for life, key in zip(lives, keys) if life.device == device["ordinal"]]
            tap.equal([[b[0], b[1], b[2], names[b[3]], b[4], b[5], b[6]] for b in device["blocks"]] if device["blocks_left_out"] == 0 else None,
                      [[life.begin_ns - first, None if life.end_ns is None else life.end_ns - first, life.bytes, key, hex(life.address), life.thread, life.stream]
                       for life, key in mine], "blocks")
            layers = {site["layer"]: names[site["site"]] for site in device["sites"] if site["layer"] is not None}
            peaks = {key: 0 for _, key in mine}
            now = dict(peaks)
            curve = []
            live = {}
            alloc = iter(zip(lives, keys))
            for op, of, _, _, address, *_ in trace.records:
                before = dict(now)
                if op in (native_trace.ALLOC, native_trace.FREE) and address in live:
                    gone, key = live.pop(address)
                    if gone.device == device["ordinal"]:
                        now[key] -= gone.bytes
                if op == native_trace.ALLOC:
                    life, key = next(alloc)
                    live[address] = (life, key)
                    if of == device["ordinal"]:
                        now[key] += life.bytes
                        peaks[key] = max(peaks[key], now[key])
                if now != before:
                    curve.append(dict(now))
            tap.equal(sorted((peaks[key] for key in peaks), reverse=True)[:len(layers)], [peaks[layers[i]] for i in range(len(layers))], "the highest peaks are layers")
            if not device["series"]["exact"]:
                continue
            levels = levels_of(device["series"])[:len(layers)]
            seen = [dict(zip(layers.values(), row)) for row, total in zip(zip(*levels), device["series"]["live"])]
            wanted = [{key: row[key] for key in layers.values()} for row in curve]
            seen, wanted = ([row for before, row in zip([dict.fromkeys(layers.values(), 0)] + rows, rows) if row != before] for rows in (seen, wanted))
            tap.equal((len(seen), next((i for i, (a, b) in enumerate(zip(seen, wanted)) if a != b), None)), (len(wanted), None), "layers over time, and where they differ")


# ---- what stands in the page ----

def every_part_is_there(_):
    show("small.html", shot="small-light")
    report = read_json("small.json")
    tap.equal(PAGE.text("h1"), "traced_client", "heading")
    tap.equal(PAGE.value("document.title"), "small.json \u2013 gpucache", "title")
    tap.equal(rows_of(".advice ul"), [report["advice"]], "advice")
    wanted = sorted(report["devices"], key=lambda d: -d["reserved_bytes"]["peak"])
    tap.equal(PAGE.value("[...document.querySelectorAll('section[id^=device] > h2')].map(h => h.textContent)"),
              [f"Device {d['ordinal']}: {d['name']}" for d in wanted], "the device held most of comes first")
    for device in report["devices"]:
        part = f"#device-{device['ordinal']} "
        tiles = dict(PAGE.value(f"[...document.querySelectorAll('{part}.tiles > div')].map(t => [t.querySelector('dt').textContent, "
                                "t.querySelector('dd').firstChild.textContent])"))
        tap.equal(tiles["Requested at most"], size(device["requested_bytes"]["peak"]), "asked for")
        tap.equal(tiles["Reserved at most"], size(device["reserved_bytes"]["peak"]), "reserved")
        tap.equal(tiles["Limit"], size(device["limit_bytes"]), "limit")
        tap.equal(tiles["Out of memory"], f"{device['oom_count']:,}", "no room")
        for line in ("live", "reserved", "reserved-edge"):
            if not PAGE.value(f"document.querySelector('{part}svg.time path.{line}').getAttribute('d')").startswith("M"):
                raise AssertionError(f"no line of {line}")
        legend = [row[0] for row in rows_of(part + ".over-time .legend")]
        tap.equal(PAGE.value(f"document.querySelectorAll('{part}svg.time path.pending').length"), int("pending" in legend[0]), "the legend has what is drawn")
        shown = PAGE.value(f"document.querySelectorAll('{part}svg.space rect.block').length")
        if shown < 5:
            raise AssertionError(f"{shown} blocks in the picture")
        rows = rows_of(part + "[data-label='Call sites'] tbody tr")
        tap.equal({row[0]: row[1] for row in rows}["cuMemAlloc_v2"], f"{device['by_api']['cuMemAlloc_v2']['count']:,}", "calls")
        tap.equal(len(rows_of(part + "[data-label='Never freed'] tbody tr")), device["leak_count"], "leaks")
        tap.equal(PAGE.value(f"document.querySelectorAll('{part}svg.hist').length"), 2, "histograms")
    settings = dict(rows_of("#settings tbody tr"))
    tap.equal((settings["mode"], settings["GPUCACHE_LIMIT"], settings["GPUCACHE_TRACE"]), ("cache", "0=160MiB,1=2GiB", path("small")), "settings")
    latency = PAGE.text("#latency p")
    if not latency.startswith("p50 "):
        raise AssertionError(latency)
    if PAGE.value("document.querySelectorAll('#device-0 .failure').length") == 0:
        raise AssertionError("no mark where no room was found")


def it_can_be_read_aloud(_):
    show("small.html")
    tree = PAGE.tree()
    roles = [role for role, _, _ in tree]
    for role in ("main", "navigation", "table", "button", "heading", "region", "application", "image"):
        if role not in roles:
            raise AssertionError(f"nothing has the role {role}")
    for role, name, properties in tree:
        if role in ("button", "link", "image", "application", "table", "heading", "region") and not name.strip():
            raise AssertionError(f"a {role} without a name")
        if role == "table" and "level" in properties:
            raise AssertionError(properties)
    levels = [properties["level"] for role, _, properties in tree if role == "heading"]
    tap.equal(levels[0], 1, "the first heading")
    if any(after > before + 1 for before, after in zip(levels, levels[1:])):
        raise AssertionError(f"headings skip a level: {levels}")
    tap.equal(PAGE.value("document.documentElement.lang"), "en", "language")
    tap.equal(PAGE.value("[...document.querySelectorAll('[id]')].length - new Set([...document.querySelectorAll('[id]')].map(n => n.id)).size"), 0, "ids twice")
    for selector in ("table", "th"):
        bad = PAGE.value(f"[...document.querySelectorAll('{selector}')].filter(n => n.tagName === 'TH' ? !n.scope : !n.caption).length")
        tap.equal(bad, 0, f"{selector} without caption or scope")
    # Each picture has its table.
    tap.equal(PAGE.value("document.querySelectorAll('details:not(.frames, .figures)').length"), PAGE.value("document.querySelectorAll('svg').length"), "tables for pictures")


# ---- what it does ----

CHART = "#device-0 svg.time"
VIEW = "#device-0 [data-role=view]"


def view():
    """[from, to] in the page's unit, as displayed."""
    return [float(number) for number in re.findall(r"([\d.]+) (?:s|ms|\u00b5s)", PAGE.text(VIEW))[:2]]


def the_pointer_shows_and_zooms(_):
    show("small.html")
    whole = view()
    left, top, width, height = PAGE.box(CHART)
    tip = "#device-0 .over-time .tip"
    tap.equal(PAGE.value(f"document.querySelector('{tip}').hidden"), True, "no tip at first")
    PAGE.mouse("mouseMoved", left + width / 2, top + height / 2)
    PAGE.wait_idle()
    text = PAGE.text(tip)
    if PAGE.value(f"document.querySelector('{tip}').hidden") or not re.search(r"live [\d.]+ \w+\s+reserved [\d.]+ \w+\s+pending .*\s+limit 160 MiB", text):
        raise AssertionError(f"the tip: {text!r}")
    PAGE.mouse("mousePressed", left + width * .4, top + 50, button="left", clickCount=1)
    PAGE.mouse("mouseMoved", left + width * .5, top + 60, button="left", buttons=1)
    PAGE.mouse("mouseMoved", left + width * .6, top + 60, button="left", buttons=1)
    PAGE.mouse("mouseReleased", left + width * .6, top + 60, button="left", clickCount=1)
    PAGE.wait_idle()
    part = view()
    if not (whole[0] < part[0] < part[1] < whole[1]) or (part[1] - part[0]) > .3 * (whole[1] - whole[0]):
        raise AssertionError(f"a fifth was chosen: {part} of {whole}")
    for number in (1, 2):
        PAGE.mouse("mousePressed", left + width / 2, top + 60, button="left", clickCount=number)
        PAGE.mouse("mouseReleased", left + width / 2, top + 60, button="left", clickCount=number)
    PAGE.wait_idle()
    tap.equal(view(), whole, "a double click shows all")
    PAGE.mouse("mouseWheel", left + width / 2, top + 60, deltaX=0, deltaY=-120, modifiers=2)
    PAGE.wait_idle()
    if view()[1] - view()[0] >= whole[1] - whole[0]:
        raise AssertionError("the wheel with Ctrl does not zoom")
    PAGE.mouse("mouseMoved", 5, 5)
    PAGE.wait_idle()
    tap.equal(PAGE.value(f"document.querySelector('{tip}').hidden"), True, "the tip goes")


def the_wheel_and_a_drag_zoom(_):
    show("sites.html")
    whole = view()
    left, top, width, height = PAGE.box(CHART)
    place = left + width * .7, top + height / 2
    PAGE.mouse("mouseMoved", *place)
    for _ in range(3):
        PAGE.mouse("mouseWheel", *place, deltaX=0, deltaY=-120)
        PAGE.wait_idle()
    near = view()
    if (near[1] - near[0]) > .6 * (whole[1] - whole[0]) or near[0] <= whole[0]:
        raise AssertionError(f"the wheel zooms in around the pointer: {near} of {whole}")
    PAGE.mouse("mouseWheel", *place, deltaX=120, deltaY=0)
    PAGE.wait_idle()
    moved = view()
    if moved[0] <= near[0] or abs((moved[1] - moved[0]) - (near[1] - near[0])) > .05 * (near[1] - near[0]):
        raise AssertionError(f"sideways it moves: {moved} after {near}")
    PAGE.mouse("mousePressed", left + width * .3, place[1], button="left", clickCount=1, modifiers=8)
    PAGE.mouse("mouseMoved", left + width * .6, place[1], button="left", buttons=1, modifiers=8)
    PAGE.mouse("mouseReleased", left + width * .6, place[1], button="left", clickCount=1, modifiers=8)
    PAGE.wait_idle()
    if view()[0] >= moved[0]:
        raise AssertionError(f"with Shift a drag moves the view: {view()} after {moved}")
    for _ in range(12):
        PAGE.mouse("mouseWheel", *place, deltaX=0, deltaY=120)
        PAGE.wait_idle()
    tap.equal(view(), whole, "out again")
    before = PAGE.value("scrollY")
    PAGE.value("document.documentElement.style.scrollBehavior = 'auto'")
    PAGE.mouse("mouseWheel", *place, deltaX=0, deltaY=240)
    PAGE.value("new Promise(done => setTimeout(done, 400))")
    if PAGE.value("scrollY") <= before:
        raise AssertionError("then the page scrolls")


def a_block_tells_its_history(_):
    """Under the pointer: the block, by whom, from when to when; a click: its stack, and what else was at its address."""
    show("sites.html")
    device = data_of("sites.html")["sides"][0]["trace"]["devices"][0]
    sites = dict(PAGE.value("[...document.querySelectorAll('#device-0 .by-site button')].map(b => [b.querySelector('code').textContent, b.dataset.layer])"))
    tap.equal(sorted(name for name in sites), ["activations (sites.py:12) \u203a empty", "grow_cache (sites.py:15) \u203a empty", "load_weights (sites.py:9) \u203a empty"],
              "the program's functions")
    left, top, width, height = PAGE.box(CHART)
    tip = "#device-0 .over-time .tip"
    # The layer of the highest peak lies at the bottom.
    PAGE.mouse("mouseMoved", left + width * .8, top + height - 40)
    PAGE.wait_idle()
    text = PAGE.text(tip)
    if not re.match(r"16\.0 MiB by load_weights \(sites\.py:9\) \u203a empty\ncuMemAlloc_v2\nallocated at [\d.]+ m?s\nnever freed\n0x[0-9a-f]+, thread 1\n", text):
        raise AssertionError(f"the tip of a block: {text!r}")
    tap.equal(PAGE.value("document.querySelectorAll('#device-0 svg.time .marked').length"), 1, "it is marked")
    begun = PAGE.value("document.querySelector('#device-0 svg.time .marked').getBBox().x")
    blocks = [b for b in device["blocks"] if b[1] is None and b[2] == 16 << 20]
    wanted = [74 + b[0] / data_of("sites.html")["sides"][0]["trace"]["duration_ns"] * (PAGE.value(f"document.querySelector('{CHART}').viewBox.baseVal.width") - 82) for b in blocks]
    if min(abs(begun - x) for x in wanted) > 2:
        raise AssertionError(f"the mark begins at {begun}, blocks at {wanted}")
    for kind in ("mousePressed", "mouseReleased"):
        PAGE.mouse(kind, left + width * .8, top + height - 40, button="left", clickCount=1)
    PAGE.wait_idle()
    history = "#device-0 .history"
    tap.equal(PAGE.value(f"document.querySelector('{history}').hidden"), False, "the history")
    own = PAGE.value(f"[...document.querySelectorAll('{history} .own')].map(n => n.textContent)")
    tap.equal([re.sub(r"/.*/", "", frame) for frame in own], ["empty (sites.py:6)"], "the program's own frame")
    if "No other block that is listed had this address." not in PAGE.text(history):
        raise AssertionError(PAGE.text(history))
    # An address that many blocks had.
    PAGE.click(f"#device-0 .by-site [data-layer='{sites['activations (sites.py:12) ' + chr(0x203a) + ' empty']}']")
    left, top, width, height = PAGE.box(CHART)
    tap.equal(PAGE.value("[...document.querySelectorAll('#device-0 svg.time .layer')].length"), 1, "one layer alone")
    at = next((x / 100 for x in range(20, 100) if PAGE.mouse("mouseMoved", left + width * x / 100, top + height - 36) is None and PAGE.wait_idle() is None
               and "freed at" in PAGE.text(tip)), None)
    text = PAGE.text(tip)
    if at is None or not re.match(r"8\.00 MiB by activations \(sites\.py:12\).*\n.*\nallocated at [\d.]+ m?s\nfreed at [\d.]+ m?s, lived [\d.]+", text):
        raise AssertionError(f"the tip of a block that was freed: {text!r}")
    for kind in ("mousePressed", "mouseReleased"):
        PAGE.mouse(kind, left + width * at, top + height - 36, button="left", clickCount=1)
    PAGE.wait_idle()
    if not re.search(r"The address had [\d,]+ other blocks? of those listed", PAGE.text(history)) or PAGE.value(f"document.querySelectorAll('{history} li:not(.stack *)').length") == 0:
        raise AssertionError(PAGE.text(history))
    PAGE.click("#device-0 .by-site [aria-pressed=true]")
    tap.equal(PAGE.value("[...document.querySelectorAll('#device-0 svg.time .layer')].length"), len(sites), "all layers again")
    # By keys.
    PAGE.value(f"document.querySelector('{CHART}').focus()")
    PAGE.press("End")
    PAGE.press("ArrowUp")
    spoken = PAGE.text("#device-0 .over-time .visually-hidden")
    if not re.match(r"16\.0 MiB by load_weights .*, cuMemAlloc_v2, allocated at .*, never freed, 0x", spoken):
        raise AssertionError(f"spoken: {spoken!r}")
    PAGE.press("ArrowUp")
    if PAGE.text("#device-0 .over-time .visually-hidden") == spoken:
        raise AssertionError("the next block is the same")
    PAGE.press("Enter")
    tap.equal(PAGE.text(history + " h4"), PAGE.text("#device-0 .over-time .visually-hidden").split(",")[0], "Enter tells its history")


def buttons_and_keys_do_the_same(_):
    show("small.html")
    report = data_of("small.html")["sides"][0]["trace"]
    peak = next(d["peak_bytes"] for d in report["devices"] if d["ordinal"] == 0)
    whole = view()
    for button, key in (("in", "+"), ("later", "PageDown"), ("earlier", "PageUp"), ("out", "-"), ("all", "0"), ("peak", "p")):
        before = view()
        PAGE.click(f"#device-0 [data-do={button}]")
        by_button = view()
        tap.equal(by_button == before, button == "all" and before == whole, f"{button} changes the view")
        if button not in ("in", "all", "peak"):
            continue
        PAGE.click("#device-0 [data-do=all]")
        PAGE.value(f"document.querySelector('{CHART}').focus()")
        PAGE.press(key)
        tap.equal(view(), by_button, f"{button} and {key}")
    PAGE.click("#device-0 [data-do=peak]")
    if f"live {size(peak)}" not in PAGE.text("#device-0 .over-time .tip"):
        raise AssertionError(f"the peak, {size(peak)}, is not in the tip: {PAGE.text('#device-0 .over-time .tip')}")
    before = view()
    PAGE.value(f"document.querySelector('{CHART}').focus()")
    PAGE.press("0")
    tap.equal(view(), whole, "0 shows all")
    if before[1] - before[0] > .2 * (whole[1] - whole[0]):
        raise AssertionError(f"the peak's view: {before}")
    tap.equal(PAGE.value("document.querySelector('#device-0 [data-do=all]').disabled"), True, "nothing more to show")
    PAGE.press("Home")
    first = PAGE.text("#device-0 .over-time .visually-hidden")
    PAGE.press("ArrowRight")
    second = PAGE.text("#device-0 .over-time .visually-hidden")
    if not re.search(r"live .*, reserved", first) or first == second:
        raise AssertionError(f"the spoken text: {first!r}, then {second!r}")


def the_picture_and_the_tables_answer(_):
    show("small.html")
    left, top, width, height = PAGE.box("#device-0 svg.space rect.block:nth-of-type(30)")
    PAGE.mouse("mouseMoved", left + width / 2, top + height / 2)
    PAGE.wait_idle()
    text = PAGE.value("[...document.querySelectorAll('#device-0 .tip:not([hidden])')].map(n => n.textContent).join()")
    if not re.search(r" by cuMem\w+\nat \+0x[0-9a-f]+ in\n(mapped pages|driver allocation) 0x", text):
        raise AssertionError(f"the tip of a block: {text!r}")
    peak = next(d["peak_bytes"] for d in data_of("small.html")["sides"][0]["trace"]["devices"] if d["ordinal"] == 0)
    if f"in use {size(peak)}." not in PAGE.text("#space-0 + div > p"):
        raise AssertionError(PAGE.text("#space-0 + div > p"))
    PAGE.click("#device-0 .over-time summary")
    if not 10 < len(rows_of("#device-0 .over-time tbody tr")) <= 201:
        raise AssertionError("the table of the chart")
    caption = PAGE.text("#device-0 .over-time caption")
    if not re.match(r"One in \d+ of the [\d,]+ points in view", caption):
        raise AssertionError(caption)
    PAGE.click("nav a[href='#settings']")
    tap.equal(PAGE.value("location.hash"), "#settings", "contents")


# ---- other pages ----

def a_million_events(_):
    record("million", MILLION_STEPS, ".json")
    tool("report", path("million.json"), "--html", path("million.html"), "--trace", path("million"))
    events = data_of("million.html")["sides"][0]["trace"]["events"]
    if events < 1000000:
        raise AssertionError(f"{events} events only")
    if os.path.getsize(path("million.html")) > 3 << 20:
        raise AssertionError(f"{os.path.getsize(path('million.html'))} bytes")
    for dark in (False, True):
        show("million.html", dark=dark, shot="million-dark" if dark else "million-light")
    note = PAGE.text("#device-0 .over-time > p:nth-last-of-type(1)")
    if not re.match(rf"{events:,} events of all devices are drawn as [\d,]+ stretches of up to .* least and the most", note):
        raise AssertionError(f"the page does not name the part that it left out: {note}")
    PAGE.click("#device-0 [data-do=in]")
    PAGE.click("#device-0 [data-do=peak]")
    tap.equal(PAGE.value("document.querySelector('#device-0 .live-band').getAttribute('d').length > 1000"), True, "the band")


def a_quiet_time_is_no_band(_):
    """Between bursts the level is what the last one left, not the band of the burst."""
    records = []
    for burst in range(3):
        for i in range(2500):
            at = burst * 1000000000 + i * 1000
            records.append((native_trace.ALLOC, 0, 0, 1, 0x100000, 64 << 20, 0, at))
            records.append((native_trace.FREE, 0, 0, 1, 0x100000, 0, 0, at + 500))
    native_trace.Trace(["cudaMalloc"], records).write(path("bursts"))
    tool("trace", path("bursts"), "--html", path("bursts.html"))
    show("bursts.html", shot="bursts")
    corners = PAGE.value("document.querySelector('#device-0 .live-band').getAttribute('d').match(/[\\d.]+ [\\d.]+/g).map(p => p.split(' ').map(Number))")
    low = max(y for _, y in corners)
    wide = [(a, b) for a, b in zip(corners, corners[1:]) if b[0] - a[0] > 100 and a[1] == b[1]]
    tap.equal([a[1] for a, _ in wide], [low] * 2, "between the bursts nothing is live")


def the_last_event_is_drawn(_):
    native_trace.Trace(["cudaMalloc"], [(native_trace.ALLOC, 0, 0, 1, 0x100000, 2 << 20, 0, 1000), (native_trace.ALLOC, 0, 0, 1, 0x900000, 6 << 20, 0, 9000)]).write(path("last"))
    tool("trace", path("last"), "--html", path("last.html"))
    show("last.html")
    levels = PAGE.value("document.querySelector('#device-0 path.live').getAttribute('d').match(/V[\\d.]+|M[\\d.]+ [\\d.]+/g).map(p => Number(p.split(/[V ]/).pop()))")
    if len(levels) < 2 or levels[-1] >= min(levels[:-1]):
        raise AssertionError(f"the line ends at {levels[-1]} of {levels}")


def reasons_have_words(_):
    """Why a plan was not followed, as the library counts it."""
    with open("core/observe/unplanned.def", encoding="utf-8") as stream:
        reasons = re.findall(r'^GC_FOLLOW_REASON\(\w+, (\w+), ("[^"]+")\)', stream.read(), re.M)
    with open("core/report/page/55-parts.js", encoding="utf-8") as stream:
        script = stream.read()
    tap.equal([key for key, words in reasons if f"{key}: {words}" not in script], [], "reasons without words")
    tap.equal(len(reasons) >= 6, True, "all reasons were read")


def every_figure_is_on_the_page(_):
    show("small.html")
    for device in read_json("small.json")["devices"]:
        rows = dict(rows_of(f"#device-{device['ordinal']} [data-label='As in the JSON report'] tbody tr"))
        for key, value in {**device, **device["fragmentation"]}.items():
            name, write = key.replace("_bytes", "").replace("_", " "), size if key.endswith("_bytes") else "{:,}".format
            if isinstance(value, int) and key != "ordinal":
                tap.equal(rows.pop(name), write(value), key)
            elif isinstance(value, dict) and "peak" in value:
                tap.equal((rows.pop(name + " at most"), rows.pop(name + " at exit")), (write(value["peak"]), write(value["current"])), key)
        tap.equal(sorted(rows), ["driver calls", "ratio"], "the others")


def two_reports_are_compared(_):
    record("other", 3000, ".json", limit="0=80MiB", seed=9)
    tool("report", path("small.json"), path("other.json"), "--html", path("both.html"), "--trace", path("small"), "--trace", path("other"))
    show("both.html", shot="both")
    before, after = (read_json(name)["devices"][0] for name in ("small.json", "other.json"))
    rows = {row[0]: row[1:] for row in rows_of("#comparison tbody tr")}
    tap.equal(rows["device 0: alloc count"][:2], [f"{before['alloc_count']:,}", f"{after['alloc_count']:,}"], "allocations")
    change = after["reserved_bytes"]["peak"] / before["reserved_bytes"]["peak"] - 1
    if f"{abs(change) * 100:.1f} %" not in rows["device 0: reserved at most"][2]:
        raise AssertionError(rows["device 0: reserved at most"])
    tap.equal(PAGE.value("document.querySelectorAll('article').length"), 2, "both are there")
    tap.equal(PAGE.value("document.querySelectorAll('svg.time').length"), 4, "charts")
    tap.equal(PAGE.value("[...document.querySelectorAll('[id]')].length - new Set([...document.querySelectorAll('[id]')].map(n => n.id)).size"), 0, "ids twice")


def the_library_writes_the_page_too(_):
    record("direct", 400, ".html")
    show("direct.html", shot="report-alone")
    tap.equal(PAGE.text("h1"), "traced_client", "heading")
    tap.equal(PAGE.value("document.querySelectorAll('svg.time').length"), 0, "no chart without a trace")
    if "GPUCACHE_TRACE" not in PAGE.text("header"):
        raise AssertionError("the page does not show how to get one")


def hostile_names_are_text(_):
    names = [HOSTILE, "</title></style>", "--><!--"]
    records = [(native_trace.ALLOC, 0, i % 3, 1, 0x1000 * (i + 1), 100 + i, 0, 1000 * i) for i in range(9)]
    native_trace.Trace(names, records, start_unix=1700000000).write(path("hostile"))
    report = read_json("small.json")
    report.update(program=HOSTILE, command=HOSTILE * 20, host=HOSTILE, warnings=[HOSTILE], settings={HOSTILE: HOSTILE})
    for device in report["devices"]:
        device["by_api"][HOSTILE] = device["by_api"].pop("cuMemAlloc_v2")
    with open(path("hostile.json"), "w", encoding="utf-8") as stream:
        json.dump(report, stream)
    tool("report", path("hostile.json"), "--html", path("hostile.html"), "--trace", path("hostile"))
    show("hostile.html", width=700)
    tap.equal(PAGE.text("h1"), HOSTILE, "the program's name")
    tap.equal(PAGE.value("document.querySelectorAll('img').length"), 0, "nothing became an element")
    if HOSTILE not in [row[0] for row in rows_of("#device-0 [data-label='Call sites'] tbody tr")]:
        raise AssertionError("the entry point is not listed")


def stacks_are_shown(_):
    report = read_json("small.json")
    stacks = [["kernels.cc:12 alloc", "train.py:7 step", HOSTILE], ["/lib/libffi.so.8+0x6f7a", "main.c:1 main"]]
    device = report["devices"][0]
    device["call_sites"] = [{"count": 3 - i, "bytes": 100 << i, "current_count": 0, "current_bytes": 0, "peak_bytes": 50 << i, "stack": stack}
                            for i, stack in enumerate(stacks)]
    device["leak_groups"][0].update(stack=stacks[0], frame=stacks[0][1], count=512)
    with open(path("stacks.json"), "w", encoding="utf-8") as stream:
        json.dump(report, stream)
    tool("report", path("stacks.json"), "--html", path("stacks.html"))
    show("stacks.html", shot="stacks")
    part = f"#device-{device['ordinal']} "
    rows = rows_of(part + "[data-label=Stacks] tbody tr")
    tap.equal([row[1:4] for row in rows], [["2", "200 B", "100 B"], ["3", "100 B", "50 B"]], "the largest first")
    frames = part + "[data-label=Stacks] tbody tr:nth-child(2) li"
    tap.equal(PAGE.value(f"[...document.querySelectorAll({json.dumps(frames)})].map(n => n.textContent)"), stacks[0], "frames")
    tap.equal(PAGE.value(f"document.querySelector({json.dumps(frames)}).checkVisibility()"), False, "folded")
    tap.equal(PAGE.text(part + "[data-label=Stacks] tbody tr:nth-child(1) summary"), "main.c:1 main", "the first frame that has a name")
    PAGE.click(part + "[data-label=Stacks] tbody tr:nth-child(2) summary")
    tap.equal(PAGE.value(f"document.querySelector({json.dumps(frames)}).checkVisibility()"), True, "unfolded")
    leak = PAGE.value(f"document.querySelector({json.dumps(part + '[data-label=' + chr(39) + 'Never freed' + chr(39) + '] .stack')}).textContent")
    if "train.py:7 step" not in leak:
        raise AssertionError(leak)
    row = rows_of(part + "[data-label='Never freed'] tbody tr")[0]
    tap.equal((row[0].startswith("train.py:7 step"), row[1]), (True, "512"), "leaks of a call site are one entry, named by the program's own frame")
    report["verdict"], report["problem"] = "", ""
    verdict = PAGE.value("[document.querySelector('.verdict').textContent, document.querySelector('.verdict').className]")
    if not re.match(r"Out of memory: [\d]+ requests refused on device", verdict[0]) or verdict[1] != "verdict bad":
        raise AssertionError(verdict)


def odd_traces_make_a_page(_):
    """Nothing in it; one event; version 1; a trace of memory alone."""
    odd = {"empty": [], "one": [(native_trace.ALLOC, 3, 0, 1, 4096, 0, 0, 77)],
           "memory": [(native_trace.MAP, 0, 0, 1, 4096, 4096, 1, 5), (native_trace.LEVELS, 0, 0, 1, 4096, 0, native_trace.NO_LIMIT, 5)]}
    for name, records in odd.items():
        native_trace.Trace(["cudaMalloc"], records).write(path(name), version=1 if name == "one" else 2)
        tool("trace", path(name), "--html", path(name + ".html"))
        show(name + ".html")


# Three functions allocate through a helper: weights that stay, activations that come and go, a cache that grows.
SITES = """import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
def empty(mib):
    address = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20)) == 0
    return address
def load_weights():
    return [empty(16) for _ in range(12)]
def activations():
    return [empty(8), empty(4)] if False else [
        empty(8) for _ in range(5)]
def grow_cache():
    return (
        empty(3))
weights, cache = load_weights(), []
for step in range(40):
    kept = activations()
    cache.append(grow_cache())
    for address in kept:
        cuda.cuMemFree_v2(address)
"""


TESTS = [stretches_have_the_least_and_the_most, figures_of_the_trace_are_right, layers_and_blocks_are_right, reasons_have_words]
IN_BROWSER = [every_part_is_there, it_can_be_read_aloud, the_pointer_shows_and_zooms, the_wheel_and_a_drag_zoom, a_block_tells_its_history,
              buttons_and_keys_do_the_same, the_picture_and_the_tables_answer, a_million_events, a_quiet_time_is_no_band, the_last_event_is_drawn,
              every_figure_is_on_the_page, two_reports_are_compared, the_library_writes_the_page_too, hostile_names_are_text, stacks_are_shown, odd_traces_make_a_page]


if __name__ == "__main__":
    record("small", 4000, ".json")
    tool("report", path("small.json"), "--html", path("small.html"), "--trace", path("small"))
    with open(path("sites.py"), "w", encoding="utf-8") as stream_:
        stream_.write(SITES)
    record("sites", None, ".json", program=[sys.executable, path("sites.py")], stacks="all")
    tool("report", path("sites.json"), "--html", path("sites.html"), "--trace", path("sites"))
    sys.exit(page_case.run(TESTS, IN_BROWSER))
