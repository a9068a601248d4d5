/* The address space at a device's peak: its segments one after the other, as lines of a text, and the blocks in them. */

class Picture {
    /* `ranks`: call sites of the device, so that colours mean the same as in its memory over time. */
    constructor(picture, device, sites, ranks, heading) {
        this.picture = picture;
        this.device = device;
        this.sites = sites;
        this.width = 960;
        const used = [...new Set(picture.segments.flatMap(segment => segment.blocks.map(block => block[3])))];
        this.ranks = ranks;
        this.order = used.sort((a, b) => ranks.indexOf(a) - ranks.indexOf(b));
        this.total = picture.segments.reduce((sum, segment) => sum + segment.bytes, 0);
        const live = picture.segments.reduce((sum, segment) => sum + segment.live_bytes, 0);
        this.svg = make("svg", {role: "img", class: "space", "aria-label": heading + ": " + counted(picture.segments.length, "segment", "segments") + " of " +
            size(this.total) + ", of which " + size(live) + " are in use"});
        this.host = make("div", {class: "chart panel"}, this.svg);
        this.tip = tip(this.host);
        this.listen();
        this.node = make("div", null, make("p", null, "At " + moment(picture.time_ns, 1e3) + ": " + counted(picture.segments.length, "segment", "segments") + " of together " +
            size(this.total) + "; in use " + size(live) + ". A line of the picture is ", this.lineText = make("span"), "; empty parts are free memory of the pools."),
        this.legend(), this.host, this.honesty(), asTable(this.table()));
        fitted(this, 640);
        this.draw();
    }

    color(site) { return ramp[this.ranks.indexOf(site)] || others; }

    legend() {
        const entry = (color, name) => make("li", null, make("span", {style: "background:" + color}), name);
        const named = this.order.filter(site => this.color(site) !== others);
        const rest = this.order.length - named.length;
        return make("ul", {class: "legend"}, named.map(site => entry(this.color(site), make("code", null, this.sites.label(site)))),
            rest > 0 ? entry(others, counted(rest, "other", "others")) : null);
    }

    honesty() {
        const notes = [];
        if (this.picture.merged_below_bytes)
            notes.push("There are too many blocks to draw each: neighbours smaller than " + size(this.picture.merged_below_bytes) + " are drawn as one.");
        if (this.picture.segments_left_out) notes.push(counted(this.picture.segments_left_out, "smaller segment is", "smaller segments are") + " left out.");
        return notes.length ? make("p", {class: "dim"}, notes.join(" ")) : null;
    }

    table() {
        const rows = this.picture.segments.map(segment => [make("code", null, segment.address), segment.mapped ? "mapped pages" : "driver allocation", size(segment.bytes),
            size(segment.live_bytes), count(segment.blocks.reduce((sum, block) => sum + block[4], 0)), size(segment.bytes - Math.min(segment.bytes, segment.live_bytes))]);
        return table("Segments by address", [{name: "address", text: true}, {name: "kind", text: true}, {name: "bytes"}, {name: "in use"}, {name: "blocks"}, {name: "free"}], rows);
    }

    listen() {
        this.svg.addEventListener("pointermove", event => {
            const text = event.target.dataset ? this.describe(event.target.dataset) : null;
            if (text) this.tip.show(text, ...inside(this.host, event));
            else this.tip.hide();
        });
        this.svg.addEventListener("pointerleave", () => this.tip.hide());
    }

    describe(data) {
        const segment = this.picture.segments[data.segment];
        if (!segment) return null;
        const head = (segment.mapped ? "mapped pages " : "driver allocation ") + segment.address + ", " + size(segment.bytes) + ", in use " + size(segment.live_bytes);
        const block = segment.blocks[data.block];
        if (!block) return head;
        const [offset, , bytes, site, number] = block;
        const name = this.sites.label(site);
        return (number === 1 ? size(bytes) + " by " + name : count(number) + " blocks, " + size(bytes) + ", most by " + name) +
            "\nat +0x" + offset.toString(16) + " in\n" + head + (number === 1 ? this.lifeOf(segment, offset) : "");
    }

    /* When the block came and went, if it is listed. */
    lifeOf(segment, offset) {
        const address = "0x" + (BigInt(segment.address) + BigInt(offset)).toString(16);
        const at = this.picture.time_ns;
        const row = this.device.blocks.find(([begin, end, , , of]) => of === address && begin <= at && (end === null || end > at));
        if (!row) return "";
        return "\nallocated at " + moment(row[0], 1e3) + ", " + (row[1] === null ? "never freed" : "freed at " + moment(row[1], 1e3));
    }

    /* As many lines as make it readable: about as wide as a block of the largest segment needs. */
    draw() {
        const lines = Math.min(24, Math.max(1, Math.ceil(Math.sqrt(this.picture.segments.length) * 2), this.total > 0 ? Math.ceil(Math.log2(this.total / (1 << 21) + 1)) : 1));
        const perLine = Math.max(1, this.total / lines);
        const height = 16;
        const gap = 5;
        const parts = [make("title", null, "Address space at the peak")];
        const place = (start, bytes, attributes) => {
            for (let at = start; at < start + bytes;) {
                const line = Math.min(lines - 1, Math.floor(at / perLine));
                const end = Math.min(start + bytes, line === lines - 1 ? Infinity : (line + 1) * perLine);
                if (end <= at) break;
                parts.push(make("rect", {...attributes, x: ((at - line * perLine) / perLine * this.width).toFixed(2), y: line * (height + gap),
                    width: Math.max(.35, (end - at) / perLine * this.width).toFixed(2), height}));
                at = end;
            }
        };
        let start = 0;
        this.picture.segments.forEach((segment, number) => {
            place(start, segment.bytes, {class: "seg", "data-segment": number});
            segment.blocks.forEach((block, at) => place(start + block[0], Math.min(block[1], segment.bytes - block[0]),
                {class: "block", fill: this.color(block[3]), "data-segment": number, "data-block": at}));
            start += segment.bytes;
        });
        this.lineText.textContent = size(Math.round(perLine));
        this.svg.setAttribute("viewBox", "0 0 " + this.width + " " + (lines * (height + gap)));
        this.svg.replaceChildren(...parts);
    }
}
