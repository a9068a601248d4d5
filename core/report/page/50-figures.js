/* Figures of a report: tiles, tables, and differences between two. */

/* One device of a side: the report's and the trace's figures of one ordinal. */
function devicesOf(side) {
    const found = new Map();
    const entry = ordinal => found.get(ordinal) || found.set(ordinal, {ordinal, report: null, trace: null, picture: null}).get(ordinal);
    if (side.report) for (const device of side.report.devices) entry(device.ordinal).report = device;
    if (side.trace) {
        for (const device of side.trace.devices) entry(device.ordinal).trace = device;
        for (const picture of side.trace.pictures) entry(picture.ordinal).picture = picture;
    }
    const weight = device => device.report ? device.report.reserved_bytes.peak : device.trace.peak_bytes;
    return [...found.values()].sort((a, b) => weight(b) - weight(a) || a.ordinal - b.ordinal);
}

function headingOf(device) {
    return "Device " + device.ordinal + (device.report && device.report.name ? ": " + device.report.name : "");
}

function tile(name, value, note, kind) {
    return make("div", null, make("dt", null, name), make("dd", {class: kind}, value, note ? make("small", null, note) : null));
}

function tiles(device) {
    const report = device.report;
    const trace = device.trace;
    const list = [];
    if (report) {
        const requests = report.hit_count + report.miss_count;
        list.push(tile("Requested at most", size(report.requested_bytes.peak), size(report.requested_bytes.current) + " at exit"),
            tile("Reserved at most", size(report.reserved_bytes.peak), size(report.reserved_bytes.current) + " at exit"),
            tile("Limit", size(report.limit_bytes), report.group ? "group " + report.group + ": " + size(report.group_limit_bytes) : "device has " + size(report.total_bytes)),
            tile("Served by the cache", requests ? (report.hit_count / requests * 100).toFixed(1) + " %" : "\u2013", count(report.hit_count) + " of " + count(requests)),
            tile("Out of memory", count(report.oom_count), counted(report.retry_count, "time trimmed", "times trimmed"), report.oom_count ? "bad" : null),
            tile("Never freed", size(report.leak_bytes), counted(report.leak_count, "allocation", "allocations"), report.leak_count ? "bad" : null));
    } else {
        list.push(tile("Live at most", size(trace.peak_bytes), counted(trace.peak_count, "allocation", "allocations")),
            tile("Allocations", count(trace.sites.reduce((sum, site) => sum + site.count, 0)), null),
            tile("Out of memory", count(trace.failure_count), null, trace.failure_count ? "bad" : null),
            tile("Live at the end", size(trace.live_bytes), counted(trace.live_count, "allocation", "allocations"), trace.live_count ? "bad" : null));
    }
    return make("dl", {class: "tiles"}, list);
}

/* Allocations by call stack: GPUCACHE_STACKS=all. */
function stackSites(report) {
    if (!report || !report.call_sites || report.call_sites.length === 0) return null;
    const rows = [...report.call_sites].sort((a, b) => b.peak_bytes - a.peak_bytes);
    const most = Math.max(1, rows[0].peak_bytes);
    const columns = [{name: "stack", text: true}, {name: "calls"}, {name: "requested"}, {name: "its peak"}, {name: "at exit"}, {name: "share", bar: true}];
    return table("Call stacks by peak, the largest first", columns, rows.map(site => [siteName("", site.stack, site.frame), count(site.count), size(site.bytes),
        size(site.peak_bytes), size(site.current_bytes), bar(site.peak_bytes / most)]), "Stacks");
}

function callSites(device, sites) {
    const rows = [];
    if (device.trace) {
        for (const of of device.trace.sites)
            rows.push({name: sites.own(of.site) ? "" : sites.api(of.site), count: of.count, bytes: of.bytes, peak: of.peak_bytes, at: of.at_peak_bytes, left: of.live_bytes,
                stack: sites.frames(of.site), own: sites.own(of.site)});
    } else {
        for (const [name, api] of Object.entries(device.report.by_api))
            rows.push({name, count: api.count, bytes: api.bytes, peak: api.peak_bytes, at: null, left: api.current_bytes});
    }
    rows.sort((a, b) => (b.at - a.at) || (b.peak - a.peak));
    const most = Math.max(1, ...rows.map(row => row.at === null ? row.peak : row.at));
    const columns = [{name: "call site", text: true}, {name: "calls"}, {name: "requested"}, {name: "its peak"},
        ...(device.trace ? [{name: "at the peak"}] : []), {name: "at exit"}, {name: "share", bar: true}];
    return table("Largest first" + (device.trace ? ", by what each had at the device's peak" : ""), columns, rows.map(row => [siteName(row.name, row.stack, row.own), count(row.count),
        size(row.bytes), size(row.peak), ...(device.trace ? [size(row.at)] : []), size(row.left), bar((row.at === null ? row.peak : row.at) / most)]), "Call sites");
}

/* By call site and entry point; without call stacks by entry point and size. */
function leaks(device, sites) {
    const report = device.report;
    const number = report ? report.leak_count : device.trace.live_count;
    const bytes = report ? report.leak_bytes : device.trace.live_bytes;
    if (number === 0) return make("p", {class: "good"}, "Everything was freed.");
    const groups = report ? report.leak_groups : tracedLeaks(device.trace, sites);
    const begun = device.trace ? new Map(device.trace.leaks.map(leak => [leak.address, leak.time_ns])) : null;
    const columns = [{name: "call site", text: true}, {name: "count"}, {name: "bytes"}, {name: "the largest"}, {name: "its address", text: true}, ...(begun ? [{name: "since"}] : [])];
    const shown = groups.slice(0, 200);
    const rows = shown.map(group => [siteName(group.frame ? "" : group.api, group.stack, group.frame), count(group.count), size(group.bytes), size(group.largest_bytes),
        make("code", null, group.address), ...(begun ? [begun.has(group.address) ? moment(begun.get(group.address), 1e3) : ""] : [])]);
    const listed = shown.reduce((sum, group) => sum + group.count, 0);
    const caption = counted(number, "allocation", "allocations") + ", " + size(bytes) + (listed < number ? "; " + count(listed) + " of them are listed, those of most bytes" : "");
    return table(caption, columns, rows, "Never freed");
}

/* The largest leaks of a trace, grouped. */
function tracedLeaks(trace, sites) {
    const groups = new Map();
    for (const leak of trace.leaks) {
        const own = sites.own(leak.site);
        const key = own ? leak.site : leak.site + " " + leak.bytes;
        if (!groups.has(key))
            groups.set(key, {count: 0, bytes: 0, largest_bytes: leak.bytes, address: leak.address, api: sites.api(leak.site), frame: own, stack: sites.frames(leak.site)});
        const group = groups.get(key);
        group.count++;
        group.bytes += leak.bytes;
    }
    return [...groups.values()].sort((a, b) => b.bytes - a.bytes);
}

function settings(report) {
    const rows = [["mode", report.mode], ["backend", report.backend], ["reuse", report.reuse || ""], ["driver", Math.floor(report.driver_version / 1000) + "." + Math.floor(report.driver_version % 1000 / 10)],
        ...report.devices.flatMap(device => [["limit of device " + device.ordinal, size(device.limit_bytes)],
            ["backend of device " + device.ordinal, (device.backend || "") + (device.backend_reason ? ": " + device.backend_reason : "")]]),
        ...Object.entries(report.settings || {})];
    return table("Limits, backends and settings", [{name: "setting", text: true}, {name: "value", text: true}],
        rows.map(([name, value]) => [make("code", null, name), make("code", null, value)]), "Settings");
}

function driverCalls(report) {
    const sums = new Map();
    for (const from of [report, ...report.devices])
        for (const [name, number] of Object.entries(from.driver_calls || {})) sums.set(name, (sums.get(name) || 0) + number);
    const rows = [...sums].sort((a, b) => b[1] - a[1]);
    const most = rows.length ? rows[0][1] : 1;
    return table("Calls that reached the driver", [{name: "entry point", text: true}, {name: "calls"}, {name: "share", bar: true}],
        rows.map(([name, number]) => [make("code", null, name), count(number), bar(number / most)]));
}

/* Every number of a device's report, as [name, how to write it, value]; a gauge has two. A figure that the library adds needs nothing here. */
function figuresOf(report) {
    const list = [];
    const add = (key, value) => list.push([key.replace(/_bytes\b/, "").replaceAll("_", " "), /_bytes\b/.test(key) ? size : count, value]);
    for (const [key, value] of [...Object.entries(report), ...Object.entries(report.fragmentation)]) {
        if (key === "ordinal") continue;
        if (typeof value === "number") add(key, value);
        else if (value && typeof value.peak === "number") { add(key + " at most", value.peak); add(key + " at exit", value.current); }
    }
    add("driver calls", Object.values(report.driver_calls).reduce((a, b) => a + b, 0));
    return list;
}

function allFigures(report) {
    const columns = [{name: "figure", text: true}, {name: "value"}];
    return make("details", {class: "figures"}, make("summary", null, "All figures"), table("As in the JSON report", columns, figuresOf(report).map(([name, write, value]) => [name, write(value)])));
}

/* ---- two reports ---- */

const worseIfMore = /^(reserved|pending|idle|miss|oom|retry|invalid free|misuse|fence|leak|host metadata|ratio|driver calls)/;
const betterIfMore = /^hit/;

function difference(name, write, before, after, less) {
    const change = after - before;
    const share = before > 0 ? " (" + (change > 0 ? "+" : "\u2212") + Math.abs(change / before * 100).toFixed(1) + " %)" : "";
    const kind = change === 0 || less === null ? null : (change < 0) === less ? "good" : "bad";
    const text = change === 0 ? "the same" : (change > 0 ? "+" : "\u2212") + write(Math.abs(change)) + share;
    return [name, write(before), write(after), make("span", {class: kind}, text)];
}

function comparison(sides) {
    const [a, b] = sides.map(side => side.report);
    const rows = [difference("run time", value => span(Math.round(value)), a.duration_s * 1e9, b.duration_s * 1e9, true),
        difference("allocation, p50", span, a.latency_ns.alloc.p50, b.latency_ns.alloc.p50, true),
        difference("allocation, p99", span, a.latency_ns.alloc.p99, b.latency_ns.alloc.p99, true),
        difference("free, p99", span, a.latency_ns.free.p99, b.latency_ns.free.p99, true)];
    for (const before of a.devices) {
        const after = b.devices.find(device => device.ordinal === before.ordinal);
        if (!after) continue;
        const others = new Map(figuresOf(after).map(([name, , value]) => [name, value]));
        for (const [name, write, value] of figuresOf(before)) {
            if (!others.has(name) || (value === 0 && others.get(name) === 0)) continue;
            const less = worseIfMore.test(name) ? true : betterIfMore.test(name) ? false : null;
            rows.push(difference((a.devices.length > 1 ? "device " + before.ordinal + ": " : "") + name, write, value, others.get(name), less));
        }
    }
    const alone = [...a.devices.filter(x => !b.devices.some(y => y.ordinal === x.ordinal)), ...b.devices.filter(x => !a.devices.some(y => y.ordinal === x.ordinal))];
    const names = sides.map((side, i) => side.name || ["first", "second"][i]);
    return make("section", {id: "comparison", "aria-labelledby": "comparison-h"}, make("h2", {id: "comparison-h"}, "Compared"),
        table("The second against the first", [{name: "figure", text: true}, {name: names[0]}, {name: names[1]}, {name: "difference"}], rows),
        alone.length ? make("p", {class: "dim"}, "Used by one of them alone: " + alone.map(device => "device " + device.ordinal).join(", ") + ".") : null);
}
