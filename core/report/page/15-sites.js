/* Call sites: their names, frames and colours. A site of a trace is an entry point, and the stack that called it where stacks were captured. */

/* "step (/home/me/train.py:12)" → "step (train.py:12)"; "grow+0x1a (/opt/serve+0x345)" → "grow (serve)"; "/opt/serve+0x345" → "serve+0x345". */
function shortFrame(frame) {
    const base = path => path.slice(path.lastIndexOf("/") + 1);
    const open = frame.lastIndexOf(" (");
    if (open < 0 || !frame.endsWith(")")) return frame.startsWith("/") ? base(frame) : frame;
    return frame.slice(0, open).replace(/\+0x[0-9a-f]+$/, "") + " (" + base(frame.slice(open + 2, -1)).replace(/\+0x[0-9a-f]+$/, "") + ")";
}

/* Colours of the sites with the most bytes; the rest share `others`. Each stands out from its neighbours and from the panel, light or dark. */
const ramp = ["#3b76c4", "#c9731f", "#3a8f5c", "#a5528f", "#8a7a28", "#4d8fa8", "#b5524a", "#6c63b8"];
const others = "#7a7f85";

class Sites {
    constructor(trace) {
        this.trace = trace;
        this.labels = this.name();
    }

    api(site) { return this.trace.apis[this.trace.sites[site].api] || "?"; }
    frames(site) { return this.trace.sites[site].stack.map(text => this.trace.frames[text]); }
    own(site) { return this.frames(site)[this.trace.sites[site].own] || null; }
    label(site) { return this.labels[site]; }

    /* The program's own frame. Where several sites have the same one, a helper that they all call, the nearest callers that differ stand before it:
     * "attention (train.py:18) \u203a empty". Then the entry point, where that alone differs. */
    name() {
        const list = this.trace.sites;
        const outer = list.map(site => site.stack.slice(site.own).map((text, i, all) => this.named(text, all[i + 1])));
        const chains = list.map((site, i) => outer[i].slice(0, 1));
        const text = chain => chain.length < 2 ? chain[0] : chain.slice(1).reverse().join(" \u203a ") + " \u203a " + chain[0].split(" (")[0];
        const labels = list.map((site, i) => outer[i][0] || this.trace.apis[site.api] || "?");
        const again = () => {
            const times = new Map();
            labels.forEach(label => times.set(label, (times.get(label) || 0) + 1));
            return labels.map(label => times.get(label) > 1);
        };
        for (let depth = 1; depth <= 3; depth++)
            again().forEach((twice, i) => {
                if (!twice || !outer[i][depth]) return;
                chains[i].push(outer[i][depth]);
                labels[i] = text(chains[i]);
            });
        again().forEach((twice, i) => { if (twice && outer[i].length) labels[i] += ", " + this.trace.apis[list[i].api]; });
        return labels;
    }

    /* A frame's short name; a comprehension or lambda of Python has that of the function around it. */
    named(text, next) {
        const short = shortFrame(this.trace.frames[text]);
        if (!/^<(listcomp|setcomp|dictcomp|genexpr|lambda)> /.test(short) || next === undefined) return short;
        const around = shortFrame(this.trace.frames[next]);
        const file = name => name.slice(name.indexOf("("), name.lastIndexOf(":"));
        return file(around) === file(short) ? around.slice(0, around.indexOf(" (")) + short.slice(short.indexOf(" (")) : short;
    }
}

/* The sites of a device by rank: the layers of its memory over time, then the others. */
function rankedSites(device) {
    return [...device.sites].sort((a, b) => (a.layer === null) - (b.layer === null) || a.layer - b.layer || b.peak_bytes - a.peak_bytes).map(site => site.site);
}

/* A site in a table: its name, and its frames, innermost first, to unfold. `own` names the program's own frame. */
function siteName(name, stack, own) {
    if (!stack || stack.length === 0) return make("code", null, name);
    const frames = make("ol", {class: "stack"}, stack.map(frame => make("li", {class: String(frame) === own ? "own" : null}, make("code", null, String(frame)))));
    /* A frame without a name is not informative alone. */
    const named = own || stack.map(String).find(frame => !/^\S*\+0x[0-9a-f]+$/.test(frame)) || String(stack[0]);
    return make("span", null, name ? make("code", null, name) : null,
        make("details", {class: "frames"}, make("summary", null, make("code", null, named)), frames));
}
