/* Live memory as layers, one on the other: a layer for each of the call sites with the most bytes, and one for the rest. In a layer lie its blocks in
 * the order of their allocation, on the part that no listed block has. A point of the series has the layers at one moment: behind its event, or, where
 * it stands for a stretch of time, when the most was live in it. */

class Layers {
    constructor(device) {
        const s = device.series;
        const sites = [];
        for (const site of device.sites) if (site.layer !== null) sites[site.layer] = site.site;
        this.sites = sites;
        this.times = s.exact ? s.time_ns : s.layers_ns;
        this.total = s.exact ? s.live : s.live_most;
        this.levels = sites.map((_, layer) => this.expand(s.layers[layer]));
        const rest = Float64Array.from(this.total);
        for (const level of this.levels) level.forEach((bytes, i) => { rest[i] = Math.max(0, rest[i] - bytes); });
        this.levels.push(rest);
        this.rest = sites.length; /* the layer of the other sites */
        this.all = this.levels.map((_, layer) => layer).filter(layer => layer !== this.rest || rest.some(bytes => bytes > 0));
        this.peaks = this.levels.map(level => level.reduce((a, b) => Math.max(a, b), 0));
        this.addBlocks(device);
    }

    /* [i, bytes, i, bytes, …] → the bytes at each point. */
    expand(changes) {
        const level = new Float64Array(this.total.length);
        for (let at = 0; at < changes.length; at += 2)
            level.fill(changes[at + 1], changes[at], at + 2 < changes.length ? changes[at + 2] : level.length);
        return level;
    }

    addBlocks(device) {
        const layerOf = new Map(this.sites.map((site, layer) => [site, layer]));
        this.blocks = this.levels.map(() => []);
        this.byAddress = new Map();
        for (const [begin, end, bytes, site, address, thread, stream] of device.blocks) {
            const layer = layerOf.has(site) ? layerOf.get(site) : this.rest;
            const block = {begin, end, bytes, site, address, thread, stream, layer};
            this.blocks[layer].push(block);
            if (!this.byAddress.has(address)) this.byAddress.set(address, []);
            this.byAddress.get(address).push(block);
        }
    }

    isLive(block, ns) { return block.begin <= ns && (block.end === null || block.end > ns); }

    /* The layers that are drawn: all, or one alone. */
    shown(only) { return only === null ? this.all : [only]; }

    top(i, only) { return this.shown(only).reduce((sum, layer) => sum + this.levels[layer][i], 0); }

    /* The parts of a layer at a point, from below: [from, to, block]; the block is null for what no listed block has. */
    parts(layer, i, from) {
        const ns = this.times[i];
        const live = this.blocks[layer].filter(block => this.isLive(block, ns));
        const small = this.levels[layer][i] - live.reduce((sum, block) => sum + block.bytes, 0);
        const found = [];
        let at = from;
        if (small > 0) found.push([at, at += small, null]);
        for (const block of live) found.push([at, at += block.bytes, block]);
        return found;
    }

    /* All parts at a point, from below: {layer, block, from, to}. */
    column(i, only) {
        const found = [];
        let from = 0;
        for (const layer of this.shown(only)) {
            for (const [below, above, block] of this.parts(layer, i, from)) found.push({layer, block, from: below, to: above});
            from += this.levels[layer][i];
        }
        return found;
    }

    /* The part at a point that holds the level. */
    find(i, bytes, only) {
        let from = 0;
        for (const layer of this.shown(only)) {
            const to = from + this.levels[layer][i];
            if (bytes >= from && bytes < to) {
                const part = this.parts(layer, i, from).find(([, above]) => bytes < above);
                return part ? {layer, block: part[2], from: part[0], to: part[1]} : {layer, block: null, from, to};
            }
            from = to;
        }
        return null;
    }

    /* Where a block lies at a point: [from, to], or null. */
    place(block, i, only) {
        if (!this.isLive(block, this.times[i])) return null;
        let from = 0;
        for (const layer of this.shown(only)) {
            if (layer === block.layer) {
                const part = this.parts(layer, i, from).find(([, , of]) => of === block);
                return part ? [part[0], part[1]] : null;
            }
            from += this.levels[layer][i];
        }
        return null;
    }

    /* Other blocks at the address, listed ones, by time. */
    neighbours(block) { return this.byAddress.get(block.address).filter(other => other !== block); }
}
