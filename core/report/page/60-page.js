/* Puts the page together. */

function section(id, title, ...content) {
    return make("section", {id, "aria-labelledby": id + "-h"}, make("h2", {id: id + "-h"}, title), content);
}

/* `suffix`: "" for the first side, "-2" for the second, so that ids stay unique. */
function deviceParts(side, suffix) {
    const sites = side.trace ? new Sites(side.trace) : null;
    return devicesOf(side).map(device => {
        const heading = headingOf(device);
        const id = name => name + "-" + device.ordinal + suffix;
        const parts = [tiles(device)];
        if (device.trace) {
            parts.push(make("h3", {id: id("time")}, "Memory over time"), new Chart(device.trace, side.trace, heading, sites).node);
            if (device.picture) parts.push(make("h3", {id: id("space")}, "Address space at the peak"), new Picture(device.picture, device.trace, sites, rankedSites(device.trace), heading).node);
        }
        parts.push(make("h3", {id: id("sites")}, "Call sites"), stackSites(device.report), callSites(device, sites));
        if (device.trace)
            parts.push(make("div", {class: "pair"}, make("div", null, make("h3", {id: id("sizes")}, "Sizes"), histogram("Sizes of allocations", device.trace.sizes, sizeEdge, "allocations")),
                make("div", null, make("h3", {id: id("lives")}, "Lifetimes"), histogram("Lifetimes", device.trace.lifetimes, timeEdge, "allocations"))));
        parts.push(make("h3", {id: id("leaks")}, "Never freed"), leaks(device, sites));
        for (const [name, title, of] of [["tenants", "Tenants", tenants], ["plan", "Plan", plan], ["held", "At exit", held]]) {
            const found = of(device.report);
            if (found) parts.push(make("h3", {id: id(name)}, title), found);
        }
        if (device.report) parts.push(allFigures(device.report));
        return section("device-" + device.ordinal + suffix, heading, parts);
    });
}

function latency(report) {
    const part = (name, of) => {
        if (of.max === 0 && !of.count) return make("div", null, make("h3", null, name), make("p", {class: "dim"}, "None."));
        const rows = (of.histogram || []).map(([below, number]) => [Math.round(Math.log2(below)) - 1, number]);
        return make("div", null, make("h3", null, name), make("p", null, "p50 " + span(of.p50) + ", p99 " + span(of.p99) + ", max " + span(of.max) + "."),
            histogram(name + " latency", rows, timeEdge, "calls"));
    };
    return make("div", {class: "pair"}, part("Allocations", report.latency_ns.alloc), part("Frees", report.latency_ns.free));
}

function head(side, label) {
    const report = side.report;
    const trace = side.trace;
    const start = new Date((report || trace).start_unix * 1000).toISOString().replace("T", " ").replace(".000Z", " UTC");
    const facts = report ? ["pid " + report.pid + " on " + report.host, start, "ran " + span(Math.round(report.duration_s * 1e9)), "gpucache " + report.version]
        : ["pid " + trace.pid, start, "trace of " + span(trace.duration_ns)];
    const notes = [];
    if (trace) {
        notes.push(count(trace.events) + " events: " + counted(trace.alloc_count, "allocation", "allocations") + ", " + counted(trace.free_count, "free", "frees") +
            ", " + count(trace.oom_count) + " out of memory");
        if (trace.unknown_free_count) notes.push(counted(trace.unknown_free_count, "free", "frees") + " of addresses without a live allocation, left out");
        if (trace.damaged_record_count) notes.push(counted(trace.damaged_record_count, "damaged record", "damaged records") + ", left out");
        if (trace.torn) notes.push("the recording was cut off");
    } else {
        notes.push("No trace: memory over time, addresses and sizes of blocks are unknown. GPUCACHE_TRACE records one; gpucache report FILE --html OUT --trace TRACE shows both");
    }
    return make("header", null, make("h1", null, (label ? label + ": " : "") + (report ? report.program : "Trace of process " + trace.pid)), report ? verdict(report) : null, report ? make("p", null, make("code", null, report.command)) : null,
        make("p", {class: "dim"}, facts.join(" \u00b7 ")), make("p", {class: "dim"}, notes.join("; ") + "."));
}

/* The worst problem of the run. */
function verdict(report) {
    if (!report.verdict) return null;
    return make("p", {class: "verdict " + (report.problem === "none" ? "good" : "bad")}, report.verdict[0].toUpperCase() + report.verdict.slice(1) + ".");
}

function advice(report) {
    if (!report || !report.advice || report.advice.length === 0) return null;
    return make("section", {class: "panel advice", "aria-label": "What to do"}, make("strong", null, "What to do"), make("ul", null, report.advice.map(text => make("li", null, text))));
}

function sideParts(side, suffix, label) {
    const parts = [head(side, label), advice(side.report), ...deviceParts(side, suffix)];
    if (side.report) {
        parts.push(side.report.turns ? section("turns" + suffix, "Turns", turns(side.report)) : null,
            side.report.estimate ? section("estimate" + suffix, "Estimate", estimate(side.report)) : null,
            section("latency" + suffix, "Latency", latency(side.report)), section("calls" + suffix, "Driver calls", driverCalls(side.report)),
            section("settings" + suffix, "Settings in force", settings(side.report)));
    }
    return parts;
}

function contents(main) {
    const whose = heading => {
        const article = heading.closest("article");
        return article ? article.getAttribute("aria-label") + ": " : "";
    };
    const links = [...main.querySelectorAll("section > h2")].map(heading =>
        make("li", null, make("a", {href: "#" + heading.parentNode.id}, whose(heading) + heading.textContent)));
    return make("nav", {"aria-label": "Contents"}, make("ul", null, links));
}

const OPEN_ON_PAPER = 20;

/* On paper the first stacks stand open and pictures are as wide as the sheet; afterwards all is as it was. */
function preparePaper() {
    const closed = [];
    addEventListener("beforeprint", () => {
        pictures.forEach(picture => picture.onPaper());
        closed.push(...[...document.querySelectorAll("details.frames:not([open])")].slice(0, OPEN_ON_PAPER));
        closed.forEach(node => { node.open = true; });
    });
    addEventListener("afterprint", () => {
        closed.splice(0).forEach(node => { node.open = false; });
        pictures.forEach(picture => picture.onScreen());
    });
}

function build() {
    const sides = page.sides;
    const main = make("main", {id: "main", tabindex: "-1"});
    const names = sides.map(side => side.name || (side.report ? side.report.program : "trace"));
    document.title = names.join(" and ") + " \u2013 gpucache";
    document.body.append(main);
    if (sides.length > 1 && sides.every(side => side.report)) {
        main.append(make("h1", null, names.join(" and ")), comparison(sides));
        sides.forEach((side, i) => main.append(make("article", {"aria-label": names[i]}, sideParts(side, "-" + (i + 1), names[i]).filter(Boolean))));
    } else {
        main.append(...sideParts(sides[0], "").filter(Boolean));
    }
    main.prepend(contents(main));
    document.body.append(make("footer", {class: "dim"}, make("p", null, "Made by gpucache. This page holds all its data and asks for nothing from elsewhere.")));
    watchScrolling();
    preparePaper();
    document.documentElement.dataset.ready = "yes";
}

build();
