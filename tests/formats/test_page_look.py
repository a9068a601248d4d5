#!/usr/bin/env python3
"""How the report's page looks in headless Chromium: at all widths, light, dark and on paper, with long names and much to list.
timeout: 240"""
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
import page_case
import tap
from page_case import PAGE, path, read_json, record, rows_of, show, size, tool

WIDTHS = (1920, 1280, 400)


def write_json(name, report):
    with open(path(name), "w", encoding="utf-8") as stream:
        json.dump(report, stream)


# ---- colours ----

CONTRAST = """(() => {
    const channel = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    const parse = c => c.match(/[\\d.]+/g).map(Number);
    const light = c => { const [r, g, b] = parse(c).map(channel); return .2126 * r + .7152 * g + .0722 * b; };
    const ground = n => { for (; n; n = n.parentElement) { const c = getComputedStyle(n).backgroundColor; if (parse(c)[3] !== 0) return c; }
        return getComputedStyle(document.body).backgroundColor; };
    let worst = [99, ''];
    for (const n of document.querySelectorAll('h1,h2,h3,p,dt,dd,th,td,caption,summary,button:not(:disabled),a,li,code,small,.good,.bad,svg text')) {
        if (!n.textContent.trim() || n.closest('.skip,.visually-hidden,[hidden]')) continue;
        const style = getComputedStyle(n);
        const [a, b] = [light(n instanceof SVGElement ? style.fill : style.color), light(ground(n))];
        const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        if (ratio < worst[0]) worst = [ratio, n.tagName + ' ' + n.textContent.slice(0, 30)];
    }
    return worst;
})()"""


def light_and_dark_can_be_read(_):
    grounds = set()
    for dark in (False, True):
        show("small.html", dark=dark, shot="small-dark" if dark else None)
        grounds.add(PAGE.value("getComputedStyle(document.body).backgroundColor"))
        ratio, where = PAGE.value(CONTRAST)
        if ratio < 4.5:
            raise AssertionError(f"contrast {ratio:.2f} at {where}, dark: {dark}")
    tap.equal(len(grounds), 2, "grounds")


# Lines, areas and blocks against the panel they are drawn on: 3 to 1.
PICTURES = """(() => {
    const channel = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(channel); return .2126 * r + .7152 * g + .0722 * b; };
    const panel = light(getComputedStyle(document.querySelector('.chart')).backgroundColor);
    const ratio = c => (Math.max(light(c), panel) + .05) / (Math.min(light(c), panel) + .05);
    const found = [];
    for (const [selector, what] of [['path.live', 'stroke'], ['path.reserved-edge', 'stroke'], ['path.limit', 'stroke'], ['path.pending', 'stroke'],
        ['.failure', 'fill'], ['.hist .column', 'fill'], ['rect.block', 'fill'], ['td.bar i', 'backgroundColor']])
        for (const node of document.querySelectorAll(selector)) found.push([ratio(getComputedStyle(node)[what]), selector]);
    return found.sort((a, b) => a[0] - b[0])[0];
})()"""


def pictures_stand_out(_):
    for dark in (False, True):
        show("busy.html", dark=dark)
        tap.equal(PAGE.value("new Set([...document.querySelectorAll('rect.block')].map(n => n.getAttribute('fill'))).size"), 9, "colours of blocks")
        ratio, where = PAGE.value(PICTURES)
        if ratio < 3:
            raise AssertionError(f"contrast {ratio:.2f} of {where}, dark: {dark}")
    legend = PAGE.value("[...document.querySelectorAll('#device-0 svg.space')].map(n => n.closest('.chart').previousElementSibling.textContent)[0]")
    if "4 others" not in legend:
        raise AssertionError(legend)


# ---- sizes ----

TOUCHING = """[...document.querySelectorAll('svg')].flatMap(svg => {
    const boxes = [...svg.querySelectorAll('text')].map(n => [n.textContent, n.getBoundingClientRect()]);
    const frame = svg.getBoundingClientRect();
    const out = boxes.filter(([, b]) => b.left < frame.left - 1 || b.right > frame.right + 1).map(([t]) => t + ' sticks out');
    return out.concat(boxes.flatMap(([t, a], i) => boxes.slice(i + 1).filter(([, b]) =>
        a.left < b.right + 6 && b.left < a.right + 6 && a.top < b.bottom && b.top < a.bottom).map(([u]) => t + ' touches ' + u)));
})"""


def labels_stand_apart(_):
    """No two texts of a picture are nearer than 6 pixels, and none is smaller than 10."""
    for width in WIDTHS:
        for name in ("small.html", "busy.html") if width < 1920 else ("busy.html",):
            show(name, width=width, shot=f"look-{name[:-5]}-{width}")
            tap.equal(PAGE.value(TOUCHING), [], f"texts at {width}")
            small = PAGE.value("Math.min(...[...document.querySelectorAll('svg text')].map(n => n.getBoundingClientRect().height))")
            if small < 10:
                raise AssertionError(f"texts of {small} pixels at {width}")
            if PAGE.value("[...document.querySelectorAll('svg.hist')].some(n => n.querySelectorAll('.edge').length < 2)"):
                raise AssertionError("an axis without labels")


def narrow_windows_do(_):
    for dark in (False, True):
        show("small.html", width=360, dark=dark, shot="narrow-dark" if dark else "narrow-light")


def long_names_and_lists_stay_inside(_):
    for width in WIDTHS[1:]:
        show("long.html", width=width, shot=f"long-{width}")
        wide = PAGE.value("[...document.querySelectorAll('main *')].filter(n => !n.closest('.scroll *') && !(n instanceof SVGElement) && "
                          "n.getBoundingClientRect().right > innerWidth + 1).map(n => n.tagName + '.' + n.className)")
        tap.equal(wide, [], f"what sticks out at {width}")
        tall = PAGE.value("Math.max(...[...document.querySelectorAll('.scroll')].map(n => n.getBoundingClientRect().height))")
        if tall > 700:
            raise AssertionError(f"a list of {tall} pixels")
    tap.equal(len(rows_of("#settings tbody tr")) >= 300, True, "settings")
    caption = PAGE.text("#device-0 [data-label='Never freed'] caption")
    if "123,456 allocations" not in caption or "400 of them are listed" not in caption:
        raise AssertionError(caption)


def columns_are_as_tall_as_their_counts(_):
    show("small.html")
    trace = page_case.data_of("small.html")["sides"][0]["trace"]
    wanted = next(d for d in trace["devices"] if d["ordinal"] == 0)["sizes"]
    tall = PAGE.value("[...document.querySelectorAll('#device-0 .pair svg.hist')[0].querySelectorAll('.column')].map(n => Number(n.getAttribute('height')))")
    counts = {power: number for power, number, _ in wanted}
    counts = [counts.get(power, 0) for power in range(wanted[0][0], wanted[-1][0] + 1)]
    tap.equal(len(tall), len(counts), "columns")
    for height, number in zip(tall, counts):
        if abs(height - max(tall) * number / max(counts)) > 1.6:
            raise AssertionError(f"{tall} for {counts}")
    left, top, width, height = PAGE.box("#device-0 .pair svg.hist")
    PAGE.mouse("mouseMoved", left + width / 2, top + height / 2)
    PAGE.wait_idle()
    text = PAGE.value("[...document.querySelectorAll('.tip:not([hidden])')].map(n => n.textContent).join()")
    if not re.search(r"to [\d.]+ \w+\n[\d,]+ allocations \([\d.]+ %\)", text):
        raise AssertionError(f"the tip: {text!r}")


def tips_stay_in_the_window(_):
    for width in (1280, 400):
        PAGE.show(width, 500)
        show("small.html", width=width, height=500)
        for selector in ("#device-0 svg.time", "#device-0 svg.space", "#device-0 svg.hist"):
            left, top, wide, tall = PAGE.box(selector)
            for across in (.02, .995):
                for down in (.05, .95):
                    PAGE.mouse("mouseMoved", left + wide * across, top + tall * down)
                    PAGE.wait_idle()
                    out = PAGE.value("[...document.querySelectorAll('.tip:not([hidden])')].map(n => n.getBoundingClientRect()).filter(b => "
                                     "b.left < 0 || b.top < 0 || b.right > innerWidth || b.bottom > innerHeight).map(b => [b.left, b.top, b.right, b.bottom])")
                    tap.equal(out, [], f"tips outside the window at {selector} {across} {down}, {width}")


# ---- keys ----

def the_tab_key_goes_through_what_can_be_used(_):
    """The skip link first, then the contents, then buttons before their chart; a table only where it scrolls."""
    show("small.html")
    seen = []
    for _ in range(20):
        PAGE.press("Tab")
        seen.append(PAGE.value("(n => [n.tagName, n.className.baseVal ?? n.className, n.dataset.do || n.textContent.slice(0, 20)])(document.activeElement)"))
        if seen[-1][0] == "BODY":
            break
    tap.equal(seen[0], ["A", "skip", "To the figures"], "first")
    tap.equal(seen[1][0], "A", "then the contents")
    tools = [entry[2] for entry in seen if entry[0] == "BUTTON"]
    tap.equal(tools[:2], ["in", "peak"], "buttons that do something")
    charts = [i for i, entry in enumerate(seen) if entry[1] == "time"]
    tap.equal(seen[charts[0] - 1][2], "peak", "a chart comes after its buttons")
    tap.equal(any(entry[1] == "scroll" for entry in seen), False, "no table scrolls here")
    show("small.html", width=400)
    tables = PAGE.value("[...document.querySelectorAll('.scroll')].filter(n => n.checkVisibility({contentVisibilityAuto: true})).map(n => "
                        "[n.scrollWidth > n.clientWidth || n.scrollHeight > n.clientHeight, n.tabIndex === 0, n.getAttribute('role') === 'region' && n.getAttribute('aria-label') !== null])")
    if not any(scrolls for scrolls, *_ in tables) or any(scrolls != stop or scrolls != named for scrolls, stop, named in tables):
        raise AssertionError(f"scrolls, is a stop, has a name: {tables}")
    PAGE.press("Tab")
    PAGE.press("Enter")
    tap.equal(PAGE.value("document.activeElement.id"), "main", "where the first link leads")


def motion_can_be_off(_):
    for wish, behaviour in (("reduce", "auto"), ("no-preference", "smooth")):
        PAGE.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": wish}])
        PAGE.open(path("small.html"))
        tap.equal(PAGE.value("getComputedStyle(document.documentElement).scrollBehavior"), behaviour, wish)
    tap.equal(PAGE.value("[...document.querySelectorAll('*')].filter(n => parseFloat(getComputedStyle(n).animationDuration) > 0 || "
                         "parseFloat(getComputedStyle(n).transitionDuration) > 0).length"), 0, "what moves")


# ---- parts ----

def tenants_plans_and_estimates_are_told(_):
    show("parts.html", shot="parts")
    report = read_json("parts.json")
    device = report["devices"][0]
    part = f"#device-{device['ordinal']} "
    tenants = sorted(device["tenants"], key=lambda t: -t["reserved_bytes"]["peak"])
    rows = rows_of(part + "[data-label='Tenants, the largest first'] tbody tr")
    tap.equal([[row[0], row[1], row[2], row[6]] for row in rows],
              [[t["name"] + (" (removed)" if t["removed"] else " (paused)" if t["paused"] else ""), size(t["limit_bytes"]), size(t["reserved_bytes"]["peak"]),
                str(t["oom_count"])] for t in tenants], "tenants")
    tap.equal([row[:3] for row in rows_of(part + "[data-label=Plan] tbody tr")],
              [["followed it", "300", "1.00 MiB"], ["did not: not in the plan", "100", "2.00 KiB"]], "plan")
    held = dict(rows_of(part + "[data-label='At exit'] tbody tr"))
    tap.equal(held["free in the pools"], size(device["fragmentation"]["free_bytes"]), "free")
    tap.equal(held["outside the pools: contexts, as measured"], size(device["direct_bytes"]["context"]), "contexts")
    estimate = dict(rows_of("#estimate tbody tr"))
    tap.equal((estimate["weights"], estimate["peak"], estimate["budget"], estimate["held at most"]), ("3.00 GiB", "5.00 GiB", "4.00 GiB", "2.00 GiB"), "estimate")
    if "It does not fit: 1.00 GiB too much." not in PAGE.text("#estimate"):
        raise AssertionError(PAGE.text("#estimate"))
    show("small.html")
    tap.equal(PAGE.value("document.querySelectorAll('#estimate, [data-label=Plan]').length"), 0, "missing parts are not shown")


# ---- paper ----

def it_prints(_):
    """Light on white whatever the screen has; pictures as wide as the sheet; stacks open; and all as before afterwards."""
    show("stacks.html", dark=True)
    before = PAGE.value("[...document.querySelectorAll('svg')].map(n => n.getAttribute('viewBox'))")
    PAGE.value("addEventListener('beforeprint', () => { window.onPaper = [[...document.querySelectorAll('svg.time, svg.hist')].map(n => "
               "n.getAttribute('viewBox').split(' ')[2]), document.querySelectorAll('details.frames[open]').length]; })")
    paper = PAGE.pdf()
    if not paper.startswith(b"%PDF") or len(paper) < 20000:
        raise AssertionError(f"{len(paper)} bytes of PDF")
    widths, opened = PAGE.value("window.onPaper")
    tap.equal(sorted(set(widths)), ["310", "640"], "widths on paper")
    tap.equal(opened, 20, "stacks that stand open")
    tap.equal(PAGE.value("[...document.querySelectorAll('svg')].map(n => n.getAttribute('viewBox'))"), before, "on the screen again")
    tap.equal(PAGE.value("document.querySelectorAll('details.frames[open]').length"), 0, "and folded")
    show("small.html", dark=True)
    paper = PAGE.pdf()
    PAGE.ask("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    tap.equal(PAGE.value("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)", "paper is white")
    tap.equal(PAGE.value("['nav', '.tools'].map(s => document.querySelector(s).checkVisibility())"), [False, False], "what paper cannot do")
    PAGE.ask("Emulation.setEmulatedMedia", media="", features=[])
    if shutil.which("pdfinfo"):
        info = subprocess.run(["pdfinfo", "-"], input=paper, capture_output=True, check=True).stdout.decode()
        pages = int(re.search(r"Pages: +(\d+)", info).group(1))
        if pages > 9:
            raise AssertionError(f"{pages} pages for a small run")


# ---- what they look at ----

def make_long():
    report = read_json("small.json")
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<c10::BFloat16, " + "std::array<char*, 3ul>, " * 20 + ">(int)"
    folder = "/home/someone/" + "a-very-long-folder-name-without-any-spaces_" * 9 + "/train.py"
    report.update(program="python3.12-with-a-long-name-" * 6, command="python3 " + folder + " " + "x" * 900, warnings=["w " * 100, "x" * 500],
                  settings={f"GPUCACHE_SETTING_{i}": "v" * 300 if i % 7 == 0 else str(i) for i in range(300)})
    for device in report["devices"]:
        device["name"] = "NVIDIA " + "H200 " * 30
        device["call_sites"] = [{"count": 1, "bytes": 2, "current_count": 0, "current_bytes": 0, "peak_bytes": 100 - i,
                                 "stack": [f"{name} ({folder}:{i})"] * 8} for i in range(25)]
        device["leaks"] = [{"address": hex(0x7f0000000000 + i * 4096), "bytes": 4096, "api": "cuMemAlloc_v2", "stack": [name] * 3} for i in range(300)]
        device["leak_groups"] = [dict(leak, count=2, bytes=8192, largest_bytes=4096, frame=name) for leak in device["leaks"]]
        device["leak_count"] = 123456
    write_json("long.json", report)
    tool("report", path("long.json"), "--html", path("long.html"), "--trace", path("small"))


def make_stacks():
    report = read_json("small.json")
    for device in report["devices"]:
        device["call_sites"] = [{"count": 1, "bytes": 2, "current_count": 0, "current_bytes": 0, "peak_bytes": 100 - i, "stack": ["inner", "outer"]}
                                for i in range(15)]
    write_json("stacks.json", report)
    tool("report", path("stacks.json"), "--html", path("stacks.html"), "--trace", path("small"))


def make_busy():
    """Twelve entry points with a block each at the peak, sizes and lifetimes of all magnitudes, pending bytes, a limit that was met."""
    names = [f"cuMemAllocNumber{i}" for i in range(12)]
    trace = page_case.native_trace
    records = [(trace.LEVELS, 0, 0, 1, 64 << 20, 3 << 20, 64 << 20, 0)]
    for i in range(12):
        records.append((trace.MAP, 0, 0, 1, 0x100000000 + (i << 24), 4 << 20, 1, 10 + i))
        records.append((trace.ALLOC, 0, i, 1, 0x100000000 + (i << 24), (4 << 20) - (i << 16), 0, 1000 * (i + 1)))
    at = 20000
    for power in range(34):
        records.append((trace.ALLOC, 0, 0, 1, 0x900000000, 1 << (power % 22), 0, at))
        records.append((trace.FREE, 0, 0, 1, 0x900000000, 0, 0, at + (1 << power)))
        at += (1 << power) + 100
    records.append((trace.OOM, 0, 0, 1, 0, 1 << 30, 0, at))
    trace.Trace(names, records, start_unix=1700000000).write(path("busy"))
    tool("trace", path("busy"), "--html", path("busy.html"))


def make_parts():
    report = read_json("small.json")
    device = report["devices"][0]
    gauge = {"current": 1 << 20, "peak": 2 << 20}
    counts = dict.fromkeys(("pending_bytes", "idle_bytes", "alloc_count", "free_count", "hit_count", "miss_count"), 7)
    device["tenants"] = [{"name": f"tenant-{i}", "removed": i == 1, "paused": i == 2, "capacity_bytes": 1 << 30, "limit_bytes": (4 << 20) if i else None,
                          "requested_bytes": gauge, "allocated_bytes": gauge, "reserved_bytes": {"current": 0, "peak": (i + 1) << 20}, "oom_count": i, **counts}
                         for i in range(3)]
    nothing = {"count": 0, "bytes": 0}
    device["plan"] = {"entries": 9, "peak_bytes": 1 << 20, "used_bytes": 1 << 20, "rounds": 1, "jumps": 0, "followed": {"count": 300, "bytes": 1 << 20},
                      "fallback": {"count": 100, "bytes": 2048}, "reasons": {"unmatched": {"count": 100, "bytes": 2048},
                                                                             **dict.fromkeys(("occupied", "pending", "capture", "memory"), nothing)}}
    parts = dict.fromkeys(("kv_cache_bytes", "state_bytes", "activation_bytes", "attention_workspace_bytes", "input_bytes"), 0)
    report["estimate"] = {"model": "/models/one", "batch": 1, "seq_len": 0, "weight_bytes": 3 << 30, "overhead_bytes": 2 << 30, "peak_bytes": 5 << 30,
                          "context_bytes": 0, "coverage": 1, "budget_bytes": 4 << 30, "fits": False, "warnings": ["a remark"], "devices": [], **parts}
    for other in report["devices"]:
        other["reserved_bytes"]["peak"] = 1 << 30
    write_json("parts.json", report)
    tool("report", path("parts.json"), "--html", path("parts.html"))


IN_BROWSER = [light_and_dark_can_be_read, pictures_stand_out, labels_stand_apart, narrow_windows_do, long_names_and_lists_stay_inside,
              columns_are_as_tall_as_their_counts, tips_stay_in_the_window, the_tab_key_goes_through_what_can_be_used, motion_can_be_off,
              tenants_plans_and_estimates_are_told, it_prints]

if __name__ == "__main__":
    record("small", 4000, ".json")
    tool("report", path("small.json"), "--html", path("small.html"), "--trace", path("small"))
    make_long()
    make_stacks()
    make_busy()
    make_parts()
    sys.exit(page_case.run([], IN_BROWSER))
