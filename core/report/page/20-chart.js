/* Memory over time, by call site. Drawn anew for each zoom, from points that are events or, where there are too many, stretches of time with the
 * least and the most in each. Pointer, buttons and keys do the same things. */

const HISTORY_MAX = 8;
const EDGE_PIXELS = 2.5; /* a lower block has no line */
const EDGE_LIFE_PIXELS = 5; /* nor has a shorter life */
const EDGES_MAX = 1e6; /* blocks in view times pieces of the picture */

class Chart {
    constructor(device, trace, heading, sites) {
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
        this.sites = sites;
        this.layers = new Layers(device);
        this.only = null; /* the layer that is shown alone */
        this.part = null; /* the part of a layer under the pointer or the cursor */
        this.build(heading, trace);
    }

    build(heading, trace) {
        const button = (label, name, act) => {
            const node = make("button", {type: "button", "data-do": name}, label);
            node.addEventListener("click", act);
            return node;
        };
        this.svg = make("svg", {role: "application", tabindex: "0", "aria-roledescription": "chart", class: "time",
            "aria-label": heading + ": memory over time by call site. Left and right move the cursor, up and down choose a block, Enter tells its history, plus and minus zoom, Page Up and Page Down move the view, 0 shows all."});
        this.host = make("div", {class: "chart panel"}, this.svg);
        this.tip = tip(this.host);
        this.status = make("p", {class: "dim", "aria-live": "polite", "data-role": "view"});
        this.spoken = make("p", {class: "visually-hidden", "aria-live": "polite"});
        this.tableHost = make("div");
        const details = asTable(this.tableHost);
        details.addEventListener("toggle", () => this.fillTable(details));
        this.details = details;
        this.history = make("div", {class: "history panel", "aria-live": "polite", hidden: true});
        this.node = make("div", {class: "over-time"}, this.legend(),
            make("div", {class: "tools", role: "group", "aria-label": "Zoom of " + heading},
                button("Zoom in", "in", () => this.zoom(.5)), button("Zoom out", "out", () => this.zoom(2)),
                button("\u2190 Earlier", "earlier", () => this.move(-.5)), button("Later \u2192", "later", () => this.move(.5)),
                button("All", "all", () => this.view(0, this.end)), button("Peak", "peak", () => this.showPeak())),
            this.host, this.bySite = this.siteLegend(), this.status, this.history, this.spoken, make("p", {class: "dim"}, this.honesty(trace)), details);
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

    color(layer) { return layer === this.layers.rest ? others : ramp[layer]; }
    layerName(layer) { return layer === this.layers.rest ? "other call sites" : this.sites.label(this.layers.sites[layer]); }

    /* The layers, the topmost first, as they lie in the picture; a button shows one alone, and again all. */
    siteLegend() {
        const entry = layer => {
            const button = make("button", {type: "button", "aria-pressed": "false", "data-layer": layer}, make("span", {style: "background:" + this.color(layer)}),
                make("code", null, this.layerName(layer)), make("small", null, " at most " + size(this.layers.peaks[layer])));
            button.addEventListener("click", () => this.showAlone(this.only === layer ? null : layer));
            button.addEventListener("pointerenter", () => this.setLit(layer));
            button.addEventListener("pointerleave", () => this.setLit(null));
            return make("li", null, button);
        };
        return make("ul", {class: "by-site", "aria-label": "Call sites, the topmost first"}, [...this.layers.all].reverse().map(entry));
    }

    showAlone(layer) {
        this.only = layer;
        for (const button of this.bySite.querySelectorAll("button")) button.setAttribute("aria-pressed", String(Number(button.dataset.layer) === layer));
        this.setPart(null);
        this.draw();
    }

    setLit(layer) {
        for (const path of this.svg.querySelectorAll(".layer")) path.classList.toggle("faint", layer !== null && Number(path.dataset.layer) !== layer);
    }

    isPending() { return (this.series.exact ? this.series.pending : this.series.pending_most).some(bytes => bytes > 0); }

    honesty(trace) {
        const points = this.series.time_ns.length;
        if (this.series.exact) return counted(points, "point", "points") + ": every event is drawn.";
        return count(trace.events) + " events of all devices are drawn as " + count(points) + " stretches of up to " + span(this.series.stretch_ns) +
            ", each with the least and the most in it: the band lies between them. The call sites are those of the moment with the most. Zooming in does not show more than these." +
            (this.device.blocks_left_out ? " Of the blocks " + count(this.device.blocks.length) + " are listed, those with the most bytes times time." : "");
    }

    listen() {
        const time = event => {
            const box = this.svg.getBoundingClientRect();
            return this.timeAt((event.clientX - box.left) / box.width * this.width);
        };
        let begun = null;
        let moved = null; /* with Shift a drag moves the view: the pointer's place */
        this.svg.addEventListener("pointermove", event => {
            if (moved !== null) {
                const box = this.svg.getBoundingClientRect();
                this.move((moved - event.clientX) / box.width);
                moved = event.clientX;
                return;
            }
            this.point(this.indexAt(time(event)), event);
            if (begun !== null) this.brush(begun, time(event));
        });
        this.svg.addEventListener("pointerleave", () => { this.tip.hide(); this.setCursor(null); this.setPart(null); });
        this.svg.addEventListener("pointerdown", event => {
            if (event.button !== 0 || event.pointerType === "touch") return;
            if (event.shiftKey) moved = event.clientX;
            else begun = time(event);
            this.svg.setPointerCapture(event.pointerId);
        });
        this.svg.addEventListener("pointerup", event => {
            const ended = time(event);
            const from = begun;
            const isMove = moved !== null;
            begun = moved = null;
            if (this.brushed) this.brushed.remove();
            if (from !== null && Math.abs(ended - from) > (this.to - this.from) / 100) this.view(Math.min(from, ended), Math.max(from, ended));
            else if (!isMove) this.point(this.indexAt(ended), event), this.tell();
        });
        this.svg.addEventListener("dblclick", () => this.view(0, this.end));
        this.svg.addEventListener("wheel", event => this.wheel(event, time(event)), {passive: false});
        this.svg.addEventListener("keydown", event => this.key(event));
    }

    /* Up zooms in and down zooms out, around the pointer, until all is shown: then the page scrolls. Sideways, or with Shift, the wheel moves the view. Turns
     * that come faster than the picture is drawn are one. */
    wheel(event, ns) {
        const across = event.shiftKey ? event.deltaY || event.deltaX : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
        const out = !across && event.deltaY > 0;
        if (out && this.from <= 0 && this.to >= this.end) return;
        event.preventDefault();
        const turned = this.turned || {factor: 1, share: 0};
        if (across) turned.share += Math.sign(across) * .1;
        else turned.factor *= Math.pow(1.0025, Math.max(-240, Math.min(240, event.deltaY * (event.deltaMode === 1 ? 30 : 1))));
        turned.ns = ns;
        if (this.turned) return;
        this.turned = turned;
        requestAnimationFrame(() => {
            this.turned = null;
            if (turned.factor !== 1) this.zoom(turned.factor, turned.ns);
            if (turned.share !== 0) this.move(turned.share);
        });
    }

    key(event) {
        const acts = {
            ArrowUp: () => this.choose(1), ArrowDown: () => this.choose(-1), Enter: () => this.tell(),
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

    /* The next part above or below the chosen one, at the cursor. */
    choose(by) {
        if (this.at === null) this.step(0);
        if (this.at === null) return;
        const column = this.layers.column(this.at, this.only);
        if (column.length === 0) return;
        const now = this.part ? column.findIndex(part => part.layer === this.part.layer && part.block === this.part.block) : -1;
        const next = column[now < 0 ? (by > 0 ? 0 : column.length - 1) : Math.max(0, Math.min(column.length - 1, now + by))];
        this.setPart(next);
        this.showTip(this.at, null);
        this.spoken.textContent = this.describePart(next).join(", ");
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

    /* What is known of a part: of a block its life, of the rest of a layer its size. */
    describePart(part) {
        const {layer, block} = part;
        if (!block) return [size(part.to - part.from) + " by " + this.layerName(layer) + ", in blocks that are not listed"];
        return [size(block.bytes) + " by " + this.sites.label(block.site), this.sites.own(block.site) ? this.sites.api(block.site) : null,
            "allocated at " + this.exactly(block.begin), block.end === null ? "never freed" : "freed at " + this.exactly(block.end) + ", lived " + span(block.end - block.begin),
            block.address + ", thread " + block.thread + (block.stream ? ", stream 0x" + block.stream.toString(16) : "")].filter(Boolean);
    }

    exactly(ns) { return moment(ns, Math.min((this.to - this.from) / 1000, 1e3)); }

    point(i, event) {
        if (this.series.time_ns.length === 0) return;
        this.setCursor(i);
        if (event) {
            const box = this.svg.getBoundingClientRect();
            const y = (event.clientY - box.top) / box.height * this.height;
            this.setPart(this.layers.find(i, (1 - (y - 12) / (this.height - this.bottom - 12)) * this.top, this.only));
        } else {
            this.setPart(null);
        }
        this.showTip(i, event);
    }

    showTip(i, event) {
        const box = this.svg.getBoundingClientRect();
        const host = this.host.getBoundingClientRect();
        const at = event ? inside(this.host, event) : [box.left - host.left + this.x(this.series.time_ns[i]) / this.width * box.width, 20];
        const point = this.describe(i);
        this.tip.show(this.part ? this.describePart(this.part).join("\n") + "\n" + point.split("\n").join("  ") : point, ...at);
    }

    /* Marks the part. A block is marked all along its life. */
    setPart(part) {
        this.part = part;
        if (this.marked) this.marked.remove();
        this.marked = null;
        if (!part) return;
        const pieces = part.block ? this.spanOf(part.block) : [];
        if (pieces.length === 0) return;
        this.marked = make("path", {class: "marked", d: pieces.map(([from, to, below, above]) =>
            "M" + from.toFixed(1) + " " + this.y(above).toFixed(1) + "H" + Math.max(to, from + .7).toFixed(1) + "V" + this.y(below).toFixed(1) + "H" + from.toFixed(1) + "Z").join("")});
        this.svg.insertBefore(this.marked, this.cursor);
    }

    /* Where a block lies in the view: [from, to, below, above] along the picture. */
    spanOf(block) {
        const found = [];
        for (const [from, to, i] of this.drawn) {
            const place = this.layers.place(block, i, this.only);
            if (!place) continue;
            const last = found[found.length - 1];
            if (last && last[1] >= from - .05 && last[2] === place[0]) last[1] = to;
            else found.push([from, to, place[0], place[1]]);
        }
        return found;
    }

    /* The history of the chosen block, below the picture. */
    tell() {
        const block = this.part && this.part.block;
        if (!block) {
            this.history.hidden = true;
            return;
        }
        const fact = (name, value) => make("div", null, make("dt", null, name), make("dd", null, value));
        const others_ = this.layers.neighbours(block);
        const frames = this.sites.frames(block.site);
        const close = make("button", {type: "button", "data-do": "close"}, "Close");
        close.addEventListener("click", () => { this.history.hidden = true; this.svg.focus(); });
        this.history.replaceChildren(close, make("h4", null, size(block.bytes) + " by " + this.sites.label(block.site)),
            make("dl", null, fact("allocated at", this.exactly(block.begin)), fact("freed at", block.end === null ? "never" : this.exactly(block.end)),
                block.end === null ? null : fact("lived", span(block.end - block.begin)), fact("bytes", count(block.bytes)), fact("entry point", make("code", null, this.sites.api(block.site))),
                fact("address", make("code", null, block.address)), fact("thread", String(block.thread)), fact("stream", make("code", null, "0x" + block.stream.toString(16)))),
            ...(frames.length ? [make("p", {class: "dim"}, "Called from, the innermost frame first:"), make("ol", {class: "stack"},
                frames.map(frame => make("li", {class: frame === this.sites.own(block.site) ? "own" : null}, make("code", null, frame))))] : []),
            make("p", {class: "dim"}, others_.length ? "The address had " + counted(others_.length, "other block", "other blocks") + " of those listed" +
                (others_.length > HISTORY_MAX ? "; the nearest in time:" : ":") : "No other block that is listed had this address."),
            make("ul", null, this.nearest(others_, block).map(other => make("li", null, this.exactly(other.begin) + " to " + (other.end === null ? "the end" : this.exactly(other.end)) +
                ": " + size(other.bytes) + " by " + this.sites.label(other.site)))));
        this.history.hidden = false;
    }

    nearest(blocks, block) {
        const distance = other => Math.abs(other.begin - block.begin);
        return [...blocks].sort((a, b) => distance(a) - distance(b)).slice(0, HISTORY_MAX).sort((a, b) => a.begin - b.begin);
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

    /* Pieces [from, to, i, share] along the picture whose layers are those of point i; where several fall on one pixel, the point with the most. Behind a
     * stretch of time its last live bytes hold: the layers are drawn with that share of their bytes. */
    columns(indexes) {
        const s = this.series;
        const step = .5;
        const found = [];
        const most = this.pieces(indexes, indexes.length ? Object.fromEntries(indexes.map(i => [i, [i, 1]])) : {},
            Object.fromEntries(indexes.map(i => [i, [i, s.exact || this.layers.total[i] === 0 ? 1 : s.live[i] / this.layers.total[i]]])));
        for (const [from, to, [i, share]] of most) {
            const last = found[found.length - 1];
            if (last && to - last[0] < step) {
                last[1] = to;
                if (this.layers.total[i] * share > this.layers.total[last[2]] * last[3]) [last[2], last[3]] = [i, share];
            } else {
                found.push([from, to, i, share]);
            }
        }
        return found;
    }

    /* A path for each layer, from below. */
    layerPaths() {
        const below = this.drawn.map(() => 0);
        return this.layers.shown(this.only).map(layer => {
            const upper = [];
            const lower = [];
            this.drawn.forEach(([from, to, i, share], at) => {
                lower.push([from, to, below[at]]);
                below[at] += this.layers.levels[layer][i] * share;
                upper.push([from, to, below[at]]);
            });
            return make("path", {class: "layer", "data-layer": layer, fill: this.color(layer), d: this.area(upper, lower)});
        });
    }

    /* Lines between the blocks of the layers, where there are few enough to be seen. */
    blockEdges() {
        const in_ = block => block.begin <= this.to && (block.end === null || block.end >= this.from);
        const least = this.top / (this.height - this.bottom - 12) * EDGE_PIXELS;
        const layers = this.layers.shown(this.only);
        const number = layers.reduce((sum, layer) => sum + this.layers.blocks[layer].filter(in_).length, 0);
        if (number === 0 || number * this.drawn.length > EDGES_MAX) return null;
        let path = "";
        let before = new Map(); /* block → [y, x] of its line so far */
        for (const [from, to, i] of this.drawn) {
            const now = new Map();
            for (const {block, from: below, to: above} of this.layers.column(i, this.only)) {
                if (!block || block.bytes < least || this.shownWidth(block) < EDGE_LIFE_PIXELS) continue;
                const y = this.y(above).toFixed(1);
                const had = before.get(block);
                if (!had) path += "M" + from.toFixed(1) + " " + this.y(below).toFixed(1) + "V" + y;
                now.set(block, had && had[0] === y ? had : [y, from]);
                if (had && had[0] !== y) path += "M" + had[1].toFixed(1) + " " + had[0] + "H" + from.toFixed(1);
                now.get(block)[2] = to;
                now.get(block)[3] = this.y(below).toFixed(1);
            }
            for (const [block, [y, x, end, foot]] of before)
                if (!now.has(block)) path += "M" + x.toFixed(1) + " " + y + "H" + end.toFixed(1) + "V" + foot;
            before = now;
        }
        for (const [y, x, end] of before.values()) path += "M" + x.toFixed(1) + " " + y + "H" + end.toFixed(1);
        return make("path", {class: "block-edges", d: path});
    }

    shownWidth(block) {
        return this.x(block.end === null ? this.to : Math.min(block.end, this.to)) - this.x(Math.max(block.begin, this.from));
    }

    draw() {
        const s = this.series;
        const indexes = this.shown();
        this.height = this.width >= 1100 ? 420 : this.width >= 700 ? 360 : 300;
        this.drawn = this.columns(indexes);
        const highest = levels => indexes.reduce((found, i) => Math.max(found, levels[i] || 0), 0);
        const held = Math.max(highest(s.exact ? s.live : s.live_most), highest(s.exact ? s.reserved : s.reserved_most), 1);
        const limit = highest(s.limit);
        /* A limit far above the peak would flatten the rest: it is not drawn, but named in the text. */
        const limitShown = limit > 0 && limit <= 4 * held;
        const alone = this.only === null ? 0 : Math.max(1, indexes.reduce((found, i) => Math.max(found, this.layers.levels[this.only][i]), 0));
        this.top = (alone || Math.max(held, limitShown ? limit : 0)) * 1.06;
        const parts = [make("title", null, "Memory over time"), ...this.axes()];
        const most = name => this.pieces(indexes, s.exact ? s[name] : s[name + "_most"], s[name]);
        const reserved = most("reserved");
        const live = most("live");
        if (!alone) parts.push(make("path", {class: "reserved", d: this.area(reserved, null)}), make("path", {class: "reserved-edge", d: this.line(reserved)}));
        parts.push(...this.layerPaths(), this.blockEdges());
        if (!alone && !s.exact) parts.push(make("path", {class: "live-band", d: this.area(live, this.pieces(indexes, s.live_least, s.live))}));
        if (!alone) parts.push(make("path", {class: s.exact ? "live" : "live dense", d: this.line(live)}), this.isPending() ? make("path", {class: "pending", d: this.line(most("pending"))}) : null);
        if (!alone && limitShown) parts.push(make("path", {class: "limit", d: this.line(this.pieces(indexes, s.limit, s.limit))}));
        parts.push(...this.failures());
        this.cursor = make("line", {class: "cursor", x1: -9, x2: -9, y1: 12, y2: this.height - this.bottom});
        parts.push(this.cursor, make("rect", {class: "surface", x: this.left, y: 0, width: this.width - this.left, height: this.height - this.bottom}));
        this.svg.setAttribute("viewBox", "0 0 " + this.width + " " + this.height);
        this.marked = null;
        this.svg.replaceChildren(...parts.filter(Boolean));
        if (this.at !== null) this.setCursor(this.at);
        this.setPart(this.part);
        const resolution = (this.to - this.from) / 1000;
        this.status.textContent = "Shown: " + moment(this.from, resolution) + " to " + moment(this.to, resolution) + " of " + moment(this.end, this.end / 1000) +
            (limit > 0 && !limitShown ? "; the limit, " + size(limit) + ", is far above the picture" : "") + "." +
            (alone ? " Only " + this.layerName(this.only) + "; its button shows all again." : "");
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
        const wanted = Math.max(3, Math.min(8, Math.floor(this.width / 130)));
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
