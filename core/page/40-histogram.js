/* Counts by powers of two: [[power, count, bytes], …]. Empty powers between are shown, so that the axis is even. */

function histogram(name, rows, edge, what) {
    if (rows.length === 0) return make("p", {class: "dim"}, "Nothing to show.");
    const first = rows[0][0];
    const last = rows[rows.length - 1][0];
    const byPower = new Map(rows.map(row => [row[0], row]));
    const most = Math.max(...rows.map(row => row[1]));
    const total = rows.reduce((sum, row) => sum + row[1], 0);
    const width = 480;
    const height = 170;
    const left = 8;
    const column = (width - 2 * left) / (last - first + 1);
    const parts = [make("title", null, name)];
    const every = Math.ceil((last - first + 1) / 8);
    for (let power = first; power <= last; power++) {
        const [, number] = byPower.get(power) || [power, 0, 0];
        const tall = number === 0 ? 0 : Math.max(1.5, number / most * (height - 46));
        const x = left + (power - first) * column;
        parts.push(make("rect", {x: x + 1, y: height - 26 - tall, width: Math.max(1, column - 2), height: tall},
            make("title", null, edge(power) + " to " + edge(power + 1) + ": " + count(number) + " " + what + " (" + (number / total * 100).toFixed(1) + " %)")));
        if ((power - first) % every === 0 && x < width - 56) parts.push(make("text", {x: x, y: height - 8, "text-anchor": "start"}, edge(power)));
    }
    parts.push(make("line", {class: "axis", x1: left, x2: width - left, y1: height - 26, y2: height - 26}),
        make("text", {x: left, y: 14}, "at most " + count(most) + " in a column"));
    const columns = [{name: "from", text: true}, {name: "below"}, {name: what}, {name: "share"}];
    if (rows[0].length > 2) columns.push({name: "bytes"});
    const cells = rows.map(([power, number, bytes]) => [edge(power), edge(power + 1), count(number), (number / total * 100).toFixed(1) + " %",
        ...(rows[0].length > 2 ? [size(bytes)] : [])]);
    return make("div", null, make("div", {class: "panel"}, make("svg", {class: "hist", role: "img", viewBox: "0 0 " + width + " " + height,
        "aria-label": name + ": " + count(total) + " " + what + " from " + edge(first) + " to " + edge(last + 1)}, parts)),
    asTable(table(name, columns, cells)));
}

const sizeEdge = power => size(Math.pow(2, power));
const timeEdge = power => span(Math.pow(2, power));
