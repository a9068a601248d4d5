/* Counts by powers of two: [[power, count, bytes], …]. Empty powers between are shown, so that the axis is even. A column stands between
 * the edges that are written below it. */

class Histogram {
    constructor(name, rows, edge, what) {
        this.rows = new Map(rows.map(row => [row[0], row]));
        this.name = name;
        this.edge = edge;
        this.what = what;
        this.first = rows[0][0];
        this.last = rows[rows.length - 1][0];
        this.most = Math.max(...rows.map(row => row[1]));
        this.total = rows.reduce((sum, row) => sum + row[1], 0);
        this.width = 480;
        this.height = 190;
        this.top = 24;
        this.bottom = 24;
        this.svg = make("svg", {class: "hist", role: "img", "aria-label": name + ": " + count(this.total) + " " + what + " from " +
            edge(this.first) + " to " + edge(this.last + 1)});
        this.host = make("div", {class: "chart panel"}, this.svg);
        this.tip = tip(this.host);
        this.svg.addEventListener("pointermove", event => this.point(event));
        this.svg.addEventListener("pointerleave", () => this.tip.hide());
        this.node = make("div", null, this.host, asTable(this.table(rows)));
        fitted(this, 310);
        this.draw();
    }

    countOf(power) { return (this.rows.get(power) || [power, 0])[1]; }
    share(number) { return (number / this.total * 100).toFixed(1) + " %"; }
    x(power) { return this.left + (power - this.first) * this.column; }
    y(number) { return this.top + (1 - number / this.highest) * (this.height - this.top - this.bottom); }

    point(event) {
        const power = Math.floor((inside(this.svg, event)[0] - this.left) / this.column) + this.first;
        if (power < this.first || power > this.last) {
            this.tip.hide();
            return;
        }
        const number = this.countOf(power);
        this.tip.show(this.edge(power) + " to " + this.edge(power + 1) + "\n" + count(number) + " " + this.what + " (" + this.share(number) + ")",
            ...inside(this.host, event));
    }

    table(rows) {
        const hasBytes = rows[0].length > 2;
        const columns = [{name: "from", text: true}, {name: "below"}, {name: this.what}, {name: "share"}, ...(hasBytes ? [{name: "bytes"}] : [])];
        return table(this.name, columns, rows.map(([power, number, bytes]) => [this.edge(power), this.edge(power + 1), count(number), this.share(number),
            ...(hasBytes ? [size(bytes)] : [])]));
    }

    draw() {
        const levels = ticks(0, this.most, 3, false).filter(number => Number.isInteger(number));
        this.highest = Math.max(this.most, levels[levels.length - 1]) * 1.02;
        this.left = 12 + textWidth(count(levels[levels.length - 1]));
        this.column = (this.width - this.left - 8) / (this.last - this.first + 1);
        const parts = [make("title", null, this.name), make("text", {x: 0, y: 12}, this.what)];
        for (const number of levels)
            parts.push(make("line", {class: "axis", x1: this.left, x2: this.width - 8, y1: this.y(number), y2: this.y(number)}),
                make("text", {x: this.left - 6, y: this.y(number) + 4, "text-anchor": "end"}, count(number)));
        for (let power = this.first; power <= this.last; power++) {
            const number = this.countOf(power);
            const tall = number === 0 ? 0 : Math.max(1.5, this.y(0) - this.y(number));
            const gap = Math.min(1, this.column / 8);
            parts.push(make("rect", {class: "column", x: (this.x(power) + gap).toFixed(1), y: (this.y(0) - tall).toFixed(1),
                width: (this.column - 2 * gap).toFixed(1), height: tall.toFixed(1)}));
        }
        parts.push(...this.edges(), make("rect", {class: "surface", x: this.left, y: 0, width: this.width - this.left, height: this.height}));
        this.svg.setAttribute("viewBox", "0 0 " + this.width + " " + this.height);
        this.svg.replaceChildren(...parts);
    }

    /* As many edges as have room for their texts: every one, every second, every fourth… */
    edges() {
        const names = [];
        for (let power = this.first; power <= this.last + 1; power++) names.push(this.edge(power).replace(/\.0+ /, " "));
        const widest = Math.max(...names.map(textWidth));
        let every = 1;
        while (every * this.column < widest + 10) every *= 2;
        const y = this.height - this.bottom;
        let free = 0; /* where the last text ended */
        return names.flatMap((name, i) => {
            if (i % every !== 0) return [];
            const half = textWidth(name) / 2;
            const x = this.x(this.first + i);
            const at = Math.min(Math.max(x, half), this.width - half); /* at an end it moves inwards */
            if (at - half < free) return [];
            free = at + half + 10;
            return [make("line", {class: "axis", x1: x, x2: x, y1: y, y2: y + 4}),
                make("text", {class: "edge", x: at.toFixed(1), y: this.height - 6, "text-anchor": "middle"}, name)];
        });
    }
}

function histogram(name, rows, edge, what) {
    return rows.length > 0 ? new Histogram(name, rows, edge, what).node : make("p", {class: "dim"}, "Nothing to show.");
}

const sizeEdge = power => size(Math.pow(2, power));
const timeEdge = power => span(Math.pow(2, power));
