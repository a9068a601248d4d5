#include "tests/unit/report_sample.h"
#include "core/device/tenant.h"

#include <stdio.h>
#include <string.h>

static const char *const api_names[REPORT_SAMPLE_API_COUNT] = {
    "cuMemAlloc_v2",
    "cudaMalloc",
    "cuMemFree_v2",
    "cuCtxSynchronize",
    "cuMemAllocAsync_ptsz",
    "entry5",
    "entry6",
    "entry7",
    "entry8",
    "entry9",
    "entry10",
    "entry11",
    "cuGraphAddMemAllocNode_with_a_very_long_name_indeed",
    "cuInit",
};

static const char *const warnings[] = {"GPUCACHE_GROUP=team: not in this version, ignored"};

static struct gc_api_figures apis[2][REPORT_SAMPLE_API_COUNT];
static uint64_t process_calls[REPORT_SAMPLE_API_COUNT] = {[13] = 1};
static struct gc_leak leaks[REPORT_SAMPLE_LEAK_COUNT];
static const struct gc_spilled spilled[2] = {{.address = UINT64_C(0x7f1234400000),
                                              .bytes = 4 << 20,
                                              .at_ns = 1500000001,
                                              .ended_ns = 2500000002,
                                              .cost_ns = 1234567,
                                              .api = 1,
                                              .reason = GC_SPILL_GROUP,
                                              .is_moved = true},
                                             {.address = UINT64_C(0x7f2234400000),
                                              .bytes = 2 << 20,
                                              .at_ns = 3000000000,
                                              .cost_ns = 1,
                                              .reason = GC_SPILL_DEVICE}};
static const struct gc_report_spills spill_lists[2] = {{spilled, 2}, {NULL, 0}};
static const struct gc_leak_group groups[REPORT_SAMPLE_GROUP_COUNT] = {
    {.count = 512,
     .bytes = UINT64_C(4) << 30,
     .largest_bytes = 100 << 20,
     .address = UINT64_C(0x7f0000000000),
     .site = 2,
     .api = 1},
    {.count = 1,
     .bytes = 99 << 20,
     .largest_bytes = 99 << 20,
     .address = UINT64_C(0x7f0000000001),
     .site = 1,
     .api = 1},
    {.count = 20,
     .bytes = 20 << 20,
     .largest_bytes = 1 << 20,
     .address = UINT64_C(0x7f0000000002),
     .api = 12}};
static const struct gc_report_leaks leak_lists[2] = {
    {leaks, groups, REPORT_SAMPLE_LEAK_COUNT, REPORT_SAMPLE_GROUP_COUNT}, {NULL, NULL, 0, 0}};
static const struct gc_stack_site sites[] = {{1, 12, 12 << 20, 2, 2 << 20, 5 << 20},
                                             {2, 1, 4096, 0, 0, 4096}};
static const struct gc_report_sites site_lists[2] = {{sites, 2}, {NULL, 0}};
static struct gc_device_snapshot devices[2];
static struct gc_process process;

static const struct gc_snapshot snapshot = {
    .api_count = REPORT_SAMPLE_API_COUNT,
    .device_count = 2,
    .devices = devices,
    .process_driver_calls = process_calls,
    .alloc_latency = {.count = 9, .p50 = 120, .p99 = 4500, .max = 98765},
    .free_latency = {.count = 9, .p50 = 80, .p99 = 90, .max = 100},
    .takes_turns = true,
    .turn = {.exchange_count = 41,
             .out_bytes = UINT64_C(3) << 30,
             .in_bytes = UINT64_C(2) << 30,
             .waited_ns = 148148148,
             .quantum_ns = 1000000000,
             .host_bytes = UINT64_C(1) << 30},
};

static struct gc_tenant_figures tenants[2] = {
    {.name = "llama",
     .is_paused = true,
     .capacity_bytes = UINT64_C(96) << 30,
     .limit_bytes = UINT64_C(24) << 30,
     .requested = {1, 2},
     .allocated = {3, 4},
     .reserved = {UINT64_C(5) << 30, UINT64_C(6) << 30},
     .pending_bytes = 7,
     .idle_bytes = 8,
     .alloc_count = 9,
     .free_count = 10,
     .hit_count = 11,
     .miss_count = 12,
     .oom_count = 13},
    {.name = "gone-and-with-a-name-that-is-rather-long-for-a-column",
     .is_removed = true,
     .limit_bytes = UINT64_MAX},
};

static void fill_device(struct gc_device_snapshot *device, int ordinal)
{
    uint64_t value = 100;
    memset(device, 0, sizeof(*device));
    device->info.ordinal = ordinal;
    device->is_mapped = true;
    snprintf(device->info.backend_reason, sizeof(device->info.backend_reason),
             "the device maps memory");
    snprintf(device->info.uuid, sizeof(device->info.uuid),
             "GPU-00000000-0000-0000-0000-00000000000%d", ordinal);
    snprintf(device->info.name, sizeof(device->info.name), "Simulated \"Device\" %d", ordinal);
    device->info.total_bytes = UINT64_C(16) << 30;
    device->limit_bytes = ordinal == 0 ? UINT64_C(4) << 30 : UINT64_MAX;
    snprintf(device->group, sizeof(device->group), ordinal == 0 ? "" : "team");
    device->group_limit_bytes = ordinal == 0 ? UINT64_MAX : UINT64_C(12) << 30;
#define GC_GAUGE(field, text) device->field = (struct gc_gauge){value, value * 1000}, value += 1;
#define GC_COUNTER(field, text) device->field = value++;
#include "core/observe/stats.def"
#undef GC_GAUGE
#undef GC_COUNTER
    device->context = (struct gc_gauge){0, device->reserved.peak / 10};
    device->refused_bytes = ordinal == 0 ? UINT64_C(1) << 30 : 0;
    device->sufficient_bytes = ordinal == 0 ? UINT64_C(9) << 29 : 0;
    device->host_metadata_bytes = 4096;
    device->idle_bytes = 3 << 20;
    device->free_bytes = 4 << 20;
    device->largest_free_bytes = 1 << 20;
    device->stitchable_bytes = 2 << 20;
    for (int kind = 0; kind < GC_DIRECT_KIND_COUNT; kind++)
        device->direct_bytes[kind] = (uint64_t)kind << 20;
    device->leak_count = ordinal == 0 ? 1234 : 0;
    device->leak_bytes = ordinal == 0 ? UINT64_C(5) << 30 : 0;
    device->apis = apis[ordinal];
    device->tenant_count = ordinal == 0 ? 0 : 2;
    device->tenants = tenants;
    if (ordinal == 1)
        device->plan = (struct gc_follow_figures){.entry_count = 21,
                                                  .peak_bytes = 22 << 20,
                                                  .used_bytes = 23,
                                                  .followed_count = 24,
                                                  .followed_bytes = 25,
                                                  .unmatched_count = 26,
                                                  .unmatched_bytes = 27,
                                                  .pending_count = 28,
                                                  .pending_bytes = 29,
                                                  .iterations = 30,
                                                  .resyncs = 31};
    for (unsigned i = 0; i < REPORT_SAMPLE_API_COUNT; i++) {
        apis[ordinal][i] = (struct gc_api_figures){.count = i == 2 ? 0 : i + 1,
                                                   .bytes = (i + 1) * 1000,
                                                   .current_bytes = i,
                                                   .peak_bytes = (i + 1) * 500,
                                                   .driver_calls = i % 2 == 0 ? i + 1 : 0};
    }
}

/* Site 1 has two frames, one of them from a hostile hand, site 2 has one. */
static bool frame(const void *source, uint32_t site, uint32_t index, char text[GC_STACK_TEXT_BYTES])
{
    static const char *const frames[][2] = {{"inner+0x12 (/opt/</script>\n/app+0x345)", "main"},
                                            {"step (/home/train.py:12)", NULL}};
    (void)source;
    if (site == 0 || index > 1 || frames[site - 1][index] == NULL)
        return false;
    snprintf(text, GC_STACK_TEXT_BYTES, "%s", frames[site - 1][index]);
    return true;
}

const struct gc_report *report_sample(const char *program)
{
    static struct gc_report report;
    process = (struct gc_process){.command = "./train --batch 8", .host = "node-1", .pid = 4242};
    snprintf(process.program, sizeof(process.program), "%s", program != NULL ? program : "train");
    for (uint32_t i = 0; i < REPORT_SAMPLE_LEAK_COUNT; i++)
        leaks[i] = (struct gc_leak){.address = UINT64_C(0x7f0000000000) + i,
                                    .bytes = (100 - i) << 20,
                                    .api = 1,
                                    .site = i % 3};
    fill_device(&devices[0], 0);
    fill_device(&devices[1], 1);
    report = (struct gc_report){
        .facts = {.process = &process,
                  .version = "1.2.3",
                  .mode = "cache",
                  .backend = "driver",
                  .reuse = "sync",
                  .start_unix = 1700000000,
                  .duration_ns = UINT64_C(1234567890),
                  .driver_version = 12040,
                  .warnings = warnings,
                  .warning_count = 1},
        .snapshot = &snapshot,
        .api_names = api_names,
        .leaks = leak_lists,
        .spills = spill_lists,
        .stacks = {.frame = frame, .sites = site_lists, .lost = 7},
    };
    return &report;
}
