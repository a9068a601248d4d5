/* Parts of a report that not every run has: tenants, memory at exit, a plan, an estimate. */

function tenants(report) {
    if (!report || !report.tenants || report.tenants.length === 0) return null;
    const rows = [...report.tenants].sort((a, b) => b.reserved_bytes.peak - a.reserved_bytes.peak);
    const columns = [{name: "tenant", text: true}, {name: "limit"}, {name: "its peak"}, {name: "reserved at exit"}, {name: "in use at exit"}, {name: "calls"}, {name: "no room"}];
    return table("Tenants, the largest first", columns, rows.map(tenant => [
        make("span", null, make("code", null, tenant.name), tenant.removed ? " (removed)" : tenant.paused ? " (paused)" : null), size(tenant.limit_bytes),
        size(tenant.reserved_bytes.peak), size(tenant.reserved_bytes.current), size(tenant.requested_bytes.current), count(tenant.alloc_count),
        make("span", {class: tenant.oom_count ? "bad" : null}, count(tenant.oom_count))]));
}

const directNames = {memory: "plain driver allocations", managed: "managed memory (where it lies is not known)", async: "stream-ordered allocations",
    pool: "stream-ordered pools", handle: "physical memory handles", array: "arrays", graph: "memory of graph nodes", context: "contexts, as measured",
    module: "modules, as measured", driver: "taken by the driver for itself, by NVML's figure", host: "page-locked host memory", import: "imported from elsewhere", elastic: "pages of elastic pools"};

/* Memory at exit. */
function held(report) {
    if (!report) return null;
    const pools = report.fragmentation;
    const rows = [["in use", report.allocated_bytes.current], ["free in the pools", pools.free_bytes], ["the largest free block of it", pools.largest_free_bytes],
        ...(pools.stitchable_bytes ? [["whole pages of it, which serve any size", pools.stitchable_bytes]] : []),
        ["freed, not yet idle", report.pending_bytes.current],
        ...Object.entries(report.direct_bytes || {}).filter(entry => entry[1] > 0).map(([kind, bytes]) => ["outside the pools: " + (directNames[kind] || kind), bytes])];
    if (!rows.some(row => row[1] > 0)) return null;
    return table("At exit, of " + size(report.reserved_bytes.current) + " reserved", [{name: "what", text: true}, {name: "bytes"}],
        rows.filter(row => row[1] > 0).map(([name, bytes]) => [name, size(bytes)]), "At exit");
}

/* Turns in the memory of the group. */
function turns(report) {
    const of = report.turns;
    if (!of) return null;
    const share = report.duration_s > 0 ? of.waited_ns / (report.duration_s * 1e9) : 0;
    return table(counted(of.exchange_count, "exchange", "exchanges") + " with host memory", [{name: "what", text: true}, {name: "figure"}, {name: "of the run", bar: true}],
        [["left the device for others", size(of.out_bytes), ""], ["came back", size(of.in_bytes), ""], ["waited for its turns", span(of.waited_ns), bar(share)],
            ["host memory, in use or kept", size(of.host_bytes), ""]], "Turns");
}

const reasons = {unmatched: "not in the plan", occupied: "place in use", pending: "place not idle yet", capture: "in a capture", memory: "no memory for it",
    registered: "in one handle, for network cards", departed: "placed by lifetime after others deviated"};

function plan(report) {
    if (!report || !report.plan) return null;
    const of = report.plan;
    const all = of.followed.count + of.fallback.count;
    const row = (name, pair) => [name, count(pair.count), size(pair.bytes), bar(all ? pair.count / all : 0)];
    return table("A plan of " + counted(of.entries, "allocation", "allocations") + " in " + size(of.peak_bytes) + ", " + counted(of.rounds, "iteration", "iterations"),
        [{name: "allocations", text: true}, {name: "count"}, {name: "bytes"}, {name: "share", bar: true}],
        [row("followed it", of.followed), ...Object.entries(of.reasons).filter(entry => entry[1].count > 0).map(([why, pair]) => row("did not: " + (reasons[why] || why), pair))],
        "Plan");
}

const estimated = {weight_bytes: "weights", kv_cache_bytes: "KV cache", state_bytes: "state", activation_bytes: "activations",
    attention_workspace_bytes: "attention workspace", gradient_bytes: "gradients", optimiser_state_bytes: "optimiser states",
    saved_activation_bytes: "saved activations", loss_bytes: "logits and loss", temporary_bytes: "temporaries", input_bytes: "inputs", overhead_bytes: "overhead"};

/* The estimate of GPUCACHE_MODEL beside the measured peak. */
function estimate(report) {
    const of = report.estimate;
    if (!of) return null;
    const rows = Object.entries(estimated).filter(([key]) => of[key] > 0).map(([key, name]) => [name, size(of[key])]);
    rows.push(["peak", size(of.peak_bytes)], ["budget", size(of.budget_bytes)]);
    if (of.measured_peak_bytes > 0) rows.push(["held at most", size(of.measured_peak_bytes)]);
    const verdict = of.fits ? make("p", {class: "good"}, "It fits.") : make("p", {class: "bad"}, "It does not fit: " + size(of.peak_bytes - of.budget_bytes) + " too much.");
    return [make("p", null, make("code", null, of.model)), verdict, table("Estimated", [{name: "part", text: true}, {name: "bytes"}], rows),
        of.warnings && of.warnings.length ? make("ul", {class: "dim"}, of.warnings.map(text => make("li", null, text))) : null];
}
