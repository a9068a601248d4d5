/* Memory over time. Drawn anew for each zoom, from points that are events or, where there are too many, stretches of time with the
 * least and the most in each. Pointer, buttons and keys do the same things. */

class Chart {
    constructor(device, trace, heading) {
        this.series = device.series;
        this.device = device;
        this.end = Math.max(trace.duration_ns, 1);
        this.from = 0;
        this.to = this.end;
        this.at = null; /* the point under the cursor */
        this.width = 960;
        this.height = 300;
        this.left = 74;
        this.bottom = 26;
        this.build(heading, trace);
    }

    build(heading, trace) {
        const button = (label, name, act) => {
            const node = make("button", {type: "button", "data-do": name}, label);
            node.addEventListener("click", act);
            return node;
        };
        this.svg = make("svg", {role: "application", tabindex: "0", "aria-roledescription": "chart", class: "time",
            "aria-label": heading + ": memory over time. Arrow keys move the cursor, plus and minus zoom, Page Up and Page Down move the view, 0 shows all."});
        this.host = make("div", {class: "chart panel"}, this.svg);
        this.tip = tip(this.host);
        this.status = make("p", {class: "dim", "aria-live": "polite", "data-role": "view"});
        this.spoken = make("p", {class: "visually-hidden", "aria-live": "polite"});
        this.tableHost = make("div");
        const details = asTable(this.tableHost);
        details.addEventListener("toggle", () => this.fillTable(details));
        this.details = details;
        this.node = make("div", {class: "over-time"}, this.legend(),
            make("div", {class: "tools", role: "group", "aria-label": "Zoom of " + heading},
                button("Zoom in", "in", () => this.zoom(.5)), button("Zoom out", "out", () => this.zoom(2)),
                button("\u2190 Earlier", "earlier", () => this.move(-.5)), button("Later \u2192", "later", () => this.move(.5)),
                button("All", "all", () => this.view(0, this.end)), button("Peak", "peak", () => this.showPeak())),
            this.host, this.status, this.spoken, make("p", {class: "dim"}, this.honesty(trace)), details);
        this.listen();
        fitted(this, 640);
        this.draw();
    }

    /* Names the lines that are drawn. */
    legend() {
        const s = this.series;
        const entry = (name, kind) => make("li", null, make("span", {class: "key-" + kind}), name);
        return make("ul", {class: "legend", "aria-hidden": "true"}, entry((s.exact ? "live" : "most live") + " (requested, not yet freed)", "live"),
            s.exact ? null : entry("between the least and the most live", "band"), entry("reserved (held from the driver)", "reserved"),
            this.isPending() ? entry("pending (freed, not yet idle)", "pending") : null,
            s.limit.some(limit => limit !== null) ? entry("limit", "limit") : null,
            this.device.failure_count ? make("li", {class: "bad"}, "\u25bc out of memory") : null);
    }

    isPending() { return (this.series.exact ? this.series.pending : this.series.pending_most).some(bytes => bytes > 0); }

    honesty(trace) {
        const points = this.series.time_ns.length;
        if (this.series.exact) return counted(points, "point", "points") + ": every event is drawn.";
        return count(trace.events) + " events of all devices are drawn as " + count(points) + " stretches of up to " + span(this.series.stretch_ns) +
            ", each with the least and the most in it: the band lies between them. Zooming in does not show more than these.";
    }

    listen() {
        const time = event => {
            const box = this.svg.getBoundingClientRect();
            return this.timeAt((event.clientX - box.left) / box.width * this.width);
        };
        let begun = null;
        this.svg.addEventListener("pointermove", event => {
            this.point(this.indexAt(time(event)), event);
            if (begun !== null) this.brush(begun, time(event));
        });
        this.svg.addEventListener("pointerleave", () => { this.tip.hide(); this.setCursor(null); });
        this.svg.addEventListener("pointerdown", event => {
            if (event.button !== 0 || event.pointerType === "touch") return;
            begun = time(event);
            this.svg.setPointerCapture(event.pointerId);
        });
        this.svg.addEventListener("pointerup", event => {
            const ended = time(event);
            const from = begun;
            begun = null;
            if (this.brushed) this.brushed.remove();
            if (from !== null && Math.abs(ended - from) > (this.to - this.from) / 100) this.view(Math.min(from, ended), Math.max(from, ended));
        });
        this.svg.addEventListener("dblclick", () => this.view(0, this.end));
        this.svg.addEventListener("wheel", event => {
            if (!event.ctrlKey && !event.shiftKey) return; /* else the page scrolls */
            event.preventDefault();
            this.zoom((event.deltaY || event.deltaX) < 0 ? .7 : 1.4, time(event));
        }, {passive: false});
        this.svg.addEventListener("keydown", event => this.key(event));
    }

    key(event) {
        const acts = {
            ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1), Home: () => this.step(-Infinity), End: () => this.step(Infinity),
            PageUp: () => this.move(-.5), PageDown: () => this.move(.5), "+": () => this.zoom(.5), "=": () => this.zoom(.5), "-": () => this.zoom(2),
            0: () => this.view(0, this.end), Escape: () => this.view(0, this.end), p: () => this.showPeak(),
        };
        if (!acts[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
        event.preventDefault();
        acts[event.key]();
    }

    /* ---- coordinates ---- */

    x(ns) { return this.left + (ns - this.from) / (this.to - this.from) * (this.width - this.left - 8); }
    timeAt(x) { return Math.min(this.end, Math.max(0, this.from + (x - this.left) / (this.width - this.left - 8) * (this.to - this.from))); }
    y(bytes) { return 12 + (1 - bytes / this.top) * (this.height - this.bottom - 12); }

    /* The last point that is not behind the time. */
    indexAt(ns) {
        const times = this.series.time_ns;
        let low = 0;
        let high = times.length;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (times[middle] <= ns) low = middle + 1;
            else high = middle;
        }
        return Math.max(0, low - 1);
    }

    /* ---- the view ---- */

    view(from, to) {
        const least = Math.max(2, this.end / 1e7);
        const length = Math.min(this.end, Math.max(to - from, least));
        this.from = Math.min(Math.max(0, from + (to - from - length) / 2), this.end - length);
        this.to = this.from + length;
        this.draw();
        this.fillTable(this.details);
    }

    zoom(factor, around) {
        const center = around !== undefined ? around : this.at !== null ? this.series.time_ns[this.at] : (this.from + this.to) / 2;
        const share = Math.min(1, Math.max(0, (center - this.from) / (this.to - this.from)));
        const length = (this.to - this.from) * factor;
        this.view(center - share * length, center + (1 - share) * length);
    }

    move(share) {
        const by = (this.to - this.from) * share;
        const room = Math.min(Math.max(by, -this.from), this.end - this.to);
        this.view(this.from + room, this.to + room);
    }

    showPeak() {
        const length = Math.min(this.to - this.from, this.end / 8);
        this.view(this.device.peak_ns - length / 2, this.device.peak_ns + length / 2);
        this.point(this.indexAt(this.device.peak_ns));
    }

    step(by) {
        const last = this.series.time_ns.length - 1;
        const start = this.at === null ? this.indexAt((this.from + this.to) / 2) : this.at;
        const at = Math.max(0, Math.min(last, by === Infinity ? last : by === -Infinity ? 0 : start + by));
        const ns = this.series.time_ns[at];
        if (ns < this.from || ns > this.to) this.move((ns - (this.from + this.to) / 2) / (this.to - this.from));
        this.point(at);
        this.spoken.textContent = this.describe(at).replaceAll("\n", ", ");
    }

    /* ---- texts ---- */

    describe(i) {
        const s = this.series;
        const range = (least, most, last) => s.exact || least[i] === most[i] ? size(last[i]) : size(least[i]) + " to " + size(most[i]);
        const lines = [moment(s.time_ns[i], (this.to - this.from) / 1000), "live " + range(s.live_least, s.live_most, s.live),
            "reserved " + range(s.reserved_least, s.reserved_most, s.reserved),
            "pending " + (s.exact ? size(s.pending[i]) : "at most " + size(s.pending_most[i]))];
        if (s.limit[i] !== null) lines.push("limit " + size(s.limit[i]));
        if (!s.exact) lines.push(counted(s.events[i], "change", "changes") + " in this stretch");
        return lines.join("\n");
    }

    point(i, event) {
        if (this.series.time_ns.length === 0) return;
        this.setCursor(i);
        const box = this.svg.getBoundingClientRect();
        const host = this.host.getBoundingClientRect();
        const at = event ? inside(this.host, event) : [box.left - host.left + this.x(this.series.time_ns[i]) / this.width * box.width, 20];
        this.tip.show(this.describe(i), ...at);
    }

    setCursor(i) {
        this.at = i;
        const x = i === null ? -9 : this.x(this.series.time_ns[i]);
        this.cursor.setAttribute("x1", x);
        this.cursor.setAttribute("x2", x);
    }

    brush(a, b) {
        if (this.brushed) this.brushed.remove();
        const x = this.x(Math.min(a, b));
        this.brushed = make("rect", {class: "brush", x, y: 12, width: Math.max(0, this.x(Math.max(a, b)) - x), height: this.height - this.bottom - 12});
        this.svg.append(this.brushed);
    }

    /* ---- drawing ---- */

    /* Indexes of the points in view, and the one before. */
    shown() {
        const first = this.indexAt(this.from);
        const last = this.indexAt(this.to);
        return this.series.time_ns.length === 0 ? [] : Array.from({length: last - first + 1}, (_, i) => first + i);
    }

    /* Pieces [from, to, level] along the picture. A level holds until the next point; the least or most of a stretch holds to the stretch's end, and
     * from there its last level (`rest`). */
    pieces(indexes, levels, rest) {
        const found = [];
        const length = this.end / this.series.stretches;
        const right = this.width - 8;
        indexes.forEach((i, at) => {
            const ns = this.series.time_ns[i];
            const next = at + 1 < indexes.length ? this.x(this.series.time_ns[indexes[at + 1]]) : right;
            const end = this.series.exact ? next : Math.min(next, this.x((Math.floor(ns / length) + 1) * length));
            const from = Math.max(this.left, this.x(ns));
            if (end > from || at + 1 === indexes.length) found.push([from, end, levels[i]]);
            if (end < next && next > from) found.push([Math.max(from, end), next, rest[i]]);
        });
        return found;
    }

    line(pieces) {
        let path = "";
        let before = null;
        for (const [from, to, level] of pieces) {
            if (level === null) { before = null; continue; }
            const y = this.y(level).toFixed(1);
            path += (before === null ? "M" + from.toFixed(1) + " " + y : "V" + y) + "H" + to.toFixed(1);
            before = y;
        }
        return path;
    }

    /* The area between two lines; without a lower one, above zero. */
    area(upper, lower) {
        if (upper.length === 0) return "";
        const under = lower || [[upper[0][0], upper[upper.length - 1][1], 0]];
        const corners = pieces => pieces.flatMap(([from, to, level]) => [[from, this.y(level)], [to, this.y(level)]]);
        const join = points => points.map(([x, y]) => x.toFixed(1) + " " + y.toFixed(1)).join("L");
        return "M" + join(corners(upper)) + "L" + join(corners(under).reverse()) + "Z";
    }

    draw() {
        const s = this.series;
        const indexes = this.shown();
        const highest = levels => indexes.reduce((found, i) => Math.max(found, levels[i] || 0), 0);
        const held = Math.max(highest(s.exact ? s.live : s.live_most), highest(s.exact ? s.reserved : s.reserved_most), 1);
        const limit = highest(s.limit);
        /* A limit far above the peak would flatten the rest: it is not drawn, but named in the text. */
        const limitShown = limit > 0 && limit <= 4 * held;
        this.top = Math.max(held, limitShown ? limit : 0) * 1.06;
        const parts = [make("title", null, "Memory over time"), ...this.axes()];
        const most = name => this.pieces(indexes, s.exact ? s[name] : s[name + "_most"], s[name]);
        const reserved = most("reserved");
        const live = most("live");
        parts.push(make("path", {class: "reserved", d: this.area(reserved, null)}), make("path", {class: "reserved-edge", d: this.line(reserved)}));
        if (!s.exact) parts.push(make("path", {class: "live-band", d: this.area(live, this.pieces(indexes, s.live_least, s.live))}));
        parts.push(make("path", {class: "live", d: this.line(live)}), this.isPending() ? make("path", {class: "pending", d: this.line(most("pending"))}) : null);
        if (limitShown) parts.push(make("path", {class: "limit", d: this.line(this.pieces(indexes, s.limit, s.limit))}));
        parts.push(...this.failures());
        this.cursor = make("line", {class: "cursor", x1: -9, x2: -9, y1: 12, y2: this.height - this.bottom});
        parts.push(this.cursor, make("rect", {class: "surface", x: this.left, y: 0, width: this.width - this.left, height: this.height - this.bottom}));
        this.svg.setAttribute("viewBox", "0 0 " + this.width + " " + this.height);
        this.svg.replaceChildren(...parts.filter(Boolean));
        const resolution = (this.to - this.from) / 1000;
        this.status.textContent = "Shown: " + moment(this.from, resolution) + " to " + moment(this.to, resolution) + " of " + moment(this.end, this.end / 1000) +
            (limit > 0 && !limitShown ? "; the limit, " + size(limit) + ", is far above the picture" : "") + ".";
        for (const [name, off] of [["all", this.from <= 0 && this.to >= this.end], ["out", this.from <= 0 && this.to >= this.end],
            ["earlier", this.from <= 0], ["later", this.to >= this.end]])
            this.node.querySelector("[data-do=" + name + "]").disabled = off;
    }

    axes() {
        const parts = [];
        for (const bytes of ticks(0, this.top, 5, true)) {
            parts.push(make("line", {class: "axis", x1: this.left, x2: this.width - 8, y1: this.y(bytes), y2: this.y(bytes)}),
                make("text", {x: this.left - 6, y: this.y(bytes) + 4, "text-anchor": "end"}, size(bytes).replace(/\.0+ /, " ")));
        }
        const wanted = Math.max(2, Math.min(8, Math.floor(this.width / 130)));
        const times = ticks(this.from, this.to, wanted, false);
        const step = times.length > 1 ? times[1] - times[0] : this.to - this.from;
        let free = 0; /* where the last text ended */
        for (const ns of times) {
            const text = moment(ns, step);
            const half = textWidth(text) / 2;
            const x = Math.min(this.x(ns), this.width - half);
            parts.push(make("line", {class: "axis", x1: this.x(ns), x2: this.x(ns), y1: this.height - this.bottom, y2: this.height - this.bottom + 5}));
            if (x - half >= free) parts.push(make("text", {class: "edge", x: x.toFixed(1), y: this.height - 6, "text-anchor": "middle"}, text));
            free = Math.max(free, x + half + 10);
        }
        return parts;
    }

    /* Failures whose marks would touch share one mark, as wide as all of them. */
    failures() {
        const marks = [];
        for (const [ns, number, most] of this.device.failures.filter(([at]) => at >= this.from && at <= this.to)) {
            const x = Math.round(this.x(ns));
            const last = marks[marks.length - 1];
            if (last && x - last.to < 10) Object.assign(last, {to: x, number: last.number + number, most: Math.max(last.most, most)});
            else marks.push({from: x, to: x, number, most});
        }
        return marks.map(({from, to, number, most}) => make("polygon", {class: "failure", points: [from - 5, 2, to + 5, 2, to, 12, from, 12].join(" ")},
            make("title", null, number === 1 ? "Out of memory: " + size(most) : "Out of memory: " + count(number) + " requests of up to " + size(most))));
    }

    fillTable(details) {
        if (!details.open) return;
        const s = this.series;
        const indexes = this.shown();
        const every = Math.max(1, Math.ceil(indexes.length / 200));
        const rows = indexes.filter((_, at) => at % every === 0).map(i => [moment(s.time_ns[i], (this.to - this.from) / 1000), size(s.live[i]),
            size(s.reserved[i]), size(s.pending[i]), size(s.limit[i])]);
        const caption = every === 1 ? "All points in view" : "One in " + every + " of the " + count(indexes.length) + " points in view";
        this.tableHost.replaceChildren(table(caption, [{name: "time", text: true}, {name: "live"}, {name: "reserved"}, {name: "pending"}, {name: "limit"}], rows));
    }
}
