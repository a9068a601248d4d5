"use strict";
/* Shared by all parts of the page: the data, elements, and formats of figures. Texts from the data become text nodes only. */

const page = JSON.parse(document.getElementById("data").textContent);

/* An element with attributes and children; strings among the children become text. Null attributes and children are left out. */
function make(name, attributes, ...children) {
    const inSvg = make.svg.has(name);
    const node = inSvg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {}))
        if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
    node.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined));
    return node;
}
make.svg = new Set(["svg", "g", "rect", "path", "line", "text", "title", "desc", "circle", "polygon"]);

const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

function size(bytes) {
    if (bytes === null || bytes === undefined) return "none";
    let unit = 0;
    let value = Math.abs(bytes);
    for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
    const text = unit === 0 ? String(value) : value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
    return (bytes < 0 ? "\u2212" : "") + text + " " + units[unit];
}

function count(value) {
    return value.toLocaleString("en-US");
}

function counted(value, one, many) {
    return count(value) + " " + (value === 1 ? one : many);
}

/* 1234567 → "1.23 ms". */
function span(ns) {
    const steps = [[1e9, "s"], [1e6, "ms"], [1e3, "\u00b5s"]];
    for (const [unit, name] of steps)
        if (ns >= unit) return String(ns >= 1000 * unit ? Math.round(ns / unit) : +(ns / unit).toPrecision(3)) + " " + name;
    return ns + " ns";
}

/* A moment of a trace, exact to `resolution`, in the unit that suits the longest trace here. */
const longest = Math.max(0, ...page.sides.map(side => side.trace ? side.trace.duration_ns : 0));
const clock = longest >= 2e9 ? [1e9, "s"] : longest >= 2e6 ? [1e6, "ms"] : [1e3, "\u00b5s"];

function moment(ns, resolution) {
    const digits = Math.min(9, Math.max(0, Math.ceil(Math.log10(clock[0]) - Math.log10(Math.max(resolution, 1)))));
    return (ns / clock[0]).toFixed(digits) + " " + clock[1];
}

/* About `wanted` round numbers in [from, to]; `binary` for bytes. */
function ticks(from, to, wanted, binary) {
    const raw = Math.max((to - from) / wanted, Number.MIN_VALUE);
    const base = binary ? Math.pow(1024, Math.max(0, Math.floor(Math.log(raw) / Math.log(1024)))) : Math.pow(10, Math.floor(Math.log10(raw)));
    const factors = binary ? [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] : [1, 2, 5, 10];
    const step = base * factors.find(factor => factor * base >= raw || factor === factors[factors.length - 1]);
    const found = [];
    for (let at = Math.ceil(from / step) * step; at <= to * (1 + 1e-12); at += step) found.push(at);
    return found;
}

/* The width of a text in a picture. */
const measured = document.createElement("canvas").getContext("2d");
measured.font = "12px " + getComputedStyle(document.body).fontFamily;

function textWidth(text) {
    return Math.ceil(measured.measureText(text).width);
}

/* A table: columns are {name, text: true, bar: true}, cells text, numbers or nodes; the first cell names its row. */
function table(caption, columns, rows, label) {
    const cell = (value, i) => {
        const column = columns[i];
        const kind = {class: column.bar ? "bar" : column.text ? "text" : null};
        if (i === 0) return make("th", {scope: "row", class: "text"}, value);
        return make("td", kind, value);
    };
    return make("div", {class: "scroll", "data-label": label || caption},
        make("table", null, make("caption", null, caption),
            make("thead", null, make("tr", null, columns.map(column =>
                make("th", {scope: "col", class: column.bar ? "bar" : column.text ? "text" : null}, column.name)))),
            make("tbody", null, rows.map(row => make("tr", null, row.map(cell))))));
}

/* A scrollable element is a stop of the Tab key and has a name; any other one is neither. */
function watchScrolling() {
    const look = node => {
        const scrolls = node.scrollWidth > node.clientWidth || node.scrollHeight > node.clientHeight;
        for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", node.dataset.label]])
            if (scrolls) node.setAttribute(name, value);
            else node.removeAttribute(name);
    };
    const observer = new ResizeObserver(entries => entries.forEach(entry => look(entry.target)));
    document.querySelectorAll(".scroll").forEach(node => observer.observe(node));
    document.addEventListener("toggle", () => document.querySelectorAll(".scroll").forEach(node => { observer.observe(node); look(node); }), true);
}

function bar(share) {
    return make("i", {style: "width:" + Math.max(0, Math.min(100, share * 100)).toFixed(1) + "%", "aria-hidden": "true"});
}

function asTable(node) {
    return make("details", null, make("summary", null, "As a table"), node);
}

/* A note that follows the pointer inside `host`, which is positioned: beside and below the pointer, or where the note fits into the host and the
 * window. */
function tip(host) {
    const node = make("div", {class: "tip", hidden: true});
    host.append(node);
    return {
        show(text, x, y) {
            node.hidden = false;
            node.textContent = text;
            const left = x + 16 + node.offsetWidth > host.clientWidth ? x - node.offsetWidth - 12 : x + 16;
            const below = innerHeight - host.getBoundingClientRect().top - node.offsetHeight - 4;
            node.style.left = Math.max(0, Math.min(left, host.clientWidth - node.offsetWidth)) + "px";
            node.style.top = (y + 12 <= below ? y + 12 : Math.min(below, y - node.offsetHeight - 12)) + "px";
        },
        hide() { node.hidden = true; },
    };
}

/* The pointer's position in `node`, for tip.show. */
function inside(node, event) {
    const box = node.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
}

/* Pictures draw themselves for the width of their panel; on paper for that of a sheet, or of half of one. */
const pictures = [];

function fitted(picture, paperWidth) {
    const fit = width => {
        if (Math.abs(width - picture.width) < 4) return;
        picture.width = width;
        picture.draw();
    };
    const onScreen = () => fit(Math.max(220, Math.round(picture.host.clientWidth - 34)));
    new ResizeObserver(() => { if (!matchMedia("print").matches) onScreen(); }).observe(picture.host);
    pictures.push({onPaper: () => fit(paperWidth), onScreen});
}
