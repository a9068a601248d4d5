/* Advice from the figures: a sentence each, the most urgent first. */
#include "core/base/bits.h"
#include "core/device/tenant.h"
#include "core/io/text.h"
#include "core/observe/stacks.h"
#include "core/report/report.h"

#include <string.h>

#define SENTENCE_BYTES 400
/* Memory that a peak needs beyond live blocks: rounding to pages, and fragmentation where memory is
 * not mapped. In percent; docs/report.md has their derivation. */
#define SLACK_MAPPED 5
#define SLACK_SEGMENTS 25
#define SLACK_MAPPED_BYTES (UINT64_C(32) << 20) /* at least */
#define SLACK_SEGMENTS_BYTES (UINT64_C(64) << 20)
#define FRAGMENTED_BYTES_MIN (UINT64_C(64) << 20)
/* Savings of this fraction of the reserved bytes, and of these bytes, are worth a sentence. */
#define LESS_DIVISOR 8
#define LESS_BYTES_MIN (UINT64_C(16) << 20)
#define WAIT_NS_MIN 10000
#define WAITED_PERCENT_MIN 1 /* of the run */

struct sentence {
    char text[SENTENCE_BYTES];
    size_t used;
};

struct advising {
    const struct gc_report *report;
    gc_advice_visit *visit;
    void *argument;
};

static void add(struct sentence *sentence, const char *text)
{
    for (; *text != '\0' && sentence->used + 1 < SENTENCE_BYTES; text++)
        sentence->text[sentence->used++] = *text;
    sentence->text[sentence->used] = '\0';
}

static void add_number(struct sentence *sentence, uint64_t value)
{
    char digits[24];
    char *p = digits + sizeof(digits) - 1;
    *p = '\0';
    do {
        *--p = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    add(sentence, p);
}

static void add_size(struct sentence *sentence, uint64_t bytes)
{
    char size[GC_TEXT_SIZE_BYTES];
    add(sentence, gc_text_size(bytes, size));
}

/* "1 request", "12 requests". */
static void add_count(struct sentence *sentence, uint64_t count, const char *one, const char *many)
{
    add_number(sentence, count);
    add(sentence, count == 1 ? one : many);
}

static void add_device(struct sentence *sentence, const struct gc_device_snapshot *device)
{
    add(sentence, " on device ");
    add_number(sentence, (uint64_t)device->info.ordinal);
}

static void emit(const struct advising *advising, struct sentence *sentence)
{
    advising->visit(advising->argument, sentence->text);
    sentence->used = 0;
}

/* ---- sentences ---- */

/* Memory of the pools at exit: reserved memory without direct memory. */
static uint64_t pooled_at_exit(const struct gc_device_snapshot *device)
{
    uint64_t pooled = device->reserved.current;
#define GC_DIRECT(name, text, charged)                                                             \
    if (charged)                                                                                   \
        pooled -= gc_min_u64(pooled, device->direct_bytes[GC_DIRECT_##name]);
#include "core/observe/direct.def"
#undef GC_DIRECT
    return pooled;
}

/* A limit that would have sufficed. Assumes that the part of the peak outside the pools, such as
 * contexts, modules and graphs, is needed. */
static uint64_t fitting_limit(const struct gc_device_snapshot *device)
{
    const uint64_t pooled = gc_min_u64(pooled_at_exit(device), device->reserved.peak);
    const uint64_t others = gc_max_u64(device->context.peak, device->reserved.peak - pooled);
    const unsigned percent = device->is_mapped ? SLACK_MAPPED : SLACK_SEGMENTS;
    const uint64_t least = device->is_mapped ? SLACK_MAPPED_BYTES : SLACK_SEGMENTS_BYTES;
    const uint64_t slack = gc_max_u64(device->allocated.peak / 100 * percent, least);
    const unsigned __int128 wanted = (unsigned __int128)device->allocated.peak + slack + others;
    if (wanted > UINT64_MAX / 2)
        return UINT64_MAX / 2;
    return gc_text_round_up((uint64_t)wanted);
}

/* Requests that may have failed at a tenant's own limit. Returns their count. */
static uint64_t advise_tenants(const struct advising *advising,
                               const struct gc_device_snapshot *device)
{
    struct sentence sentence = {.used = 0};
    uint64_t count = 0;
    for (uint32_t i = 0; i < device->tenant_count; i++) {
        const struct gc_tenant_figures *tenant = &device->tenants[i];
        char name[sizeof(tenant->name)];
        if (tenant->oom_count == 0 || tenant->limit_bytes == UINT64_MAX)
            continue;
        count += tenant->oom_count;
        add_count(&sentence, tenant->oom_count, " request", " requests");
        add(&sentence, " of tenant ");
        add(&sentence, gc_text_printable(tenant->name, strlen(tenant->name), name, sizeof(name)));
        add(&sentence, " ran out of memory");
        add_device(&sentence, device);
        add(&sentence, ": its limit is ");
        add_size(&sentence, tenant->limit_bytes);
        emit(advising, &sentence);
    }
    return count;
}

static void advise_failures(const struct advising *advising,
                            const struct gc_device_snapshot *device)
{
    struct sentence sentence = {.used = 0};
    const uint64_t of_tenants = advise_tenants(advising, device);
    if (device->oom_count <= of_tenants)
        return;
    add_count(&sentence, device->oom_count - of_tenants, " request", " requests");
    add(&sentence, " ran out of memory");
    add_device(&sentence, device);
    if (device->limit_bytes != UINT64_MAX) {
        add(&sentence, ": raise GPUCACHE_LIMIT above ");
        add_size(&sentence, device->limit_bytes);
        add(&sentence, ", or request less");
    } else if (device->group_limit_bytes != UINT64_MAX) {
        add(&sentence, ": the limit of its group is ");
        add_size(&sentence, device->group_limit_bytes);
        add(&sentence, "; raise it with `gpucache limit`, or let requests wait with GPUCACHE_WAIT");
    } else {
        add(&sentence, ": the program held at most ");
        add_size(&sentence, device->reserved.peak);
        add(&sentence, " of ");
        add_size(&sentence, device->info.total_bytes);
        add(&sentence, "; the program requested too much, or other programs use the rest");
    }
    emit(advising, &sentence);
}

/* Whether a lower limit would have saved enough memory to mention. */
static bool could_be_less(const struct gc_device_snapshot *device, uint64_t fitting)
{
    const uint64_t least = gc_max_u64(device->reserved.peak / LESS_DIVISOR, LESS_BYTES_MIN);
    return device->oom_count == 0 && device->allocated.peak > 0 && least <= device->reserved.peak &&
           fitting <= device->reserved.peak - least;
}

static void add_fitting(struct sentence *sentence, const struct gc_device_snapshot *device,
                        uint64_t fitting)
{
    add(sentence, "; the peak would fit in about ");
    add_size(sentence, fitting);
    if (device->context.peak == 0)
        add(sentence, " plus the context");
}

/* How often the limit was reached, and a limit that would have sufficed. */
static void advise_limit(const struct advising *advising, const struct gc_device_snapshot *device)
{
    struct sentence sentence = {.used = 0};
    const uint64_t fitting = fitting_limit(device);
    const bool is_limited =
        device->limit_bytes != UINT64_MAX || device->group_limit_bytes != UINT64_MAX;
    if (device->retry_count > 0) {
        add(&sentence, is_limited ? "the limit was reached " : "the device was full ");
        add_count(&sentence, device->retry_count, " time", " times");
        add_device(&sentence, device);
        add(&sentence, "; idle memory was released");
        if (device->oom_count == 0 && device->allocated.peak > 0 && fitting < device->reserved.peak)
            add_fitting(&sentence, device, fitting);
    } else if (could_be_less(device, fitting)) {
        add_size(&sentence, device->reserved.peak);
        add(&sentence, " were reserved");
        add_device(&sentence, device);
        add(&sentence, ", of which ");
        add_size(&sentence, device->allocated.peak);
        add(&sentence, " were in use at most");
        add_fitting(&sentence, device, fitting);
    }
    if (sentence.used > 0)
        emit(advising, &sentence);
}

/* Memory that lay on the host for want of room, and the limit that has room for it. */
static void advise_spilling(const struct advising *advising,
                            const struct gc_device_snapshot *device)
{
    struct sentence sentence = {.used = 0};
    const uint64_t fitting = fitting_limit(device);
    const bool is_limited =
        device->limit_bytes != UINT64_MAX || device->group_limit_bytes != UINT64_MAX;
    if (device->spilled.peak == 0)
        return;
    add_size(&sentence, device->spilled.peak);
    add(&sentence, " lay in host memory");
    if (is_limited && fitting <= device->info.total_bytes) {
        add_device(&sentence, device);
        add(&sentence, ": a limit of ");
        add_size(&sentence, fitting);
        add(&sentence,
            device->context.peak == 0 ? " plus the context would end it" : " would end it");
    } else {
        add(&sentence, ", which device ");
        add_number(&sentence, (uint64_t)device->info.ordinal);
        add(&sentence, " of ");
        add_size(&sentence, device->info.total_bytes);
        add(&sentence, " has no room for: request less, or use a larger device");
    }
    emit(advising, &sentence);
}

/* More than one in ten allocations did not follow the plan. */
static void advise_plan(const struct advising *advising, const struct gc_device_snapshot *device)
{
    const struct gc_follow_figures *plan = &device->plan;
    struct sentence sentence = {.used = 0};
    uint64_t count = 0;
    uint64_t most = 0;
    const char *why = "";
#define GC_FOLLOW_REASON(name, key, text)                                                          \
    count += plan->key##_count;                                                                    \
    if (plan->key##_count > most) {                                                                \
        most = plan->key##_count;                                                                  \
        why = text;                                                                                \
    }
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
    if (plan->entry_count == 0 || count <= (count + plan->followed_count) / 10)
        return;
    add_number(&sentence, count);
    add(&sentence, " of ");
    add_count(&sentence, count + plan->followed_count, " allocation", " allocations");
    add(&sentence, " did not follow the plan");
    add_device(&sentence, device);
    add(&sentence, ", most of them: ");
    add(&sentence, why);
    add(&sentence, "; make a plan of this run with GPUCACHE_TRACE and gpucache plan");
    emit(advising, &sentence);
}

/* The most bytes of the device that were in host memory because of turns. */
static uint64_t swapped_peak(const struct gc_snapshot *snapshot)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < snapshot->device_count; i++)
        most = gc_max_u64(most, snapshot->devices[i].swapped.peak);
    return most;
}

/* Turns that took a part of the run worth a sentence. */
static void advise_turns(const struct advising *advising)
{
    const struct gc_snapshot *snapshot = advising->report->snapshot;
    const uint64_t ran_ns = advising->report->facts.duration_ns;
    const struct gc_ledger_turn *turn = &snapshot->turn;
    struct sentence sentence = {.used = 0};
    if (!snapshot->takes_turns || ran_ns == 0 || turn->exchange_count == 0 ||
        turn->waited_ns < ran_ns / 100 * WAITED_PERCENT_MIN)
        return;
    add(&sentence, "its memory was swapped ");
    add_count(&sentence, turn->exchange_count, " time", " times");
    add(&sentence, ", and it waited ");
    add_number(&sentence, (uint64_t)((unsigned __int128)turn->waited_ns * 100 / ran_ns));
    add(&sentence, " % of the run for its turns: ");
    if (swapped_peak(snapshot) != 0) {
        add_size(&sentence, gc_text_round_up(swapped_peak(snapshot)));
        add(&sentence, " more in GPUCACHE_GROUP_LIMIT, or ");
    }
    add(&sentence, "one process less in the group would keep it on the device");
    emit(advising, &sentence);
}

static bool is_set(const struct gc_report_facts *facts, const char *name)
{
    for (uint32_t i = 0; i < facts->setting_count; i++) {
        if (strcmp(facts->settings[i].name, name) == 0)
            return true;
    }
    return false;
}

/* Frees that wait only because of GPUCACHE_REUSE=sync. */
static void advise_waits(const struct advising *advising)
{
    const struct gc_report_facts *facts = &advising->report->facts;
    const struct gc_latency *frees = &advising->report->snapshot->free_latency;
    struct sentence sentence = {.used = 0};
    char span[GC_TEXT_SPAN_BYTES];
    if (facts->reuse == NULL || strcmp(facts->reuse, "sync") != 0 ||
        is_set(facts, "GPUCACHE_DEBUG") || frees->count == 0 || frees->p50 < WAIT_NS_MIN)
        return;
    add(&sentence, "frees wait for the device (GPUCACHE_REUSE=sync), p50 ");
    add(&sentence, gc_text_span(frees->p50, span));
    add(&sentence, "; GPUCACHE_REUSE=fence, the default, does not wait");
    emit(advising, &sentence);
}

static void advise_fragmentation(const struct advising *advising,
                                 const struct gc_device_snapshot *device)
{
    struct sentence sentence = {.used = 0};
    if (device->is_mapped || device->free_bytes < FRAGMENTED_BYTES_MIN ||
        device->largest_free_bytes >= device->free_bytes / 4)
        return;
    add_size(&sentence, device->free_bytes);
    add(&sentence, " are free in the cache");
    add_device(&sentence, device);
    add(&sentence, ", the largest free block ");
    add_size(&sentence, device->largest_free_bytes);
    add(&sentence, ": GPUCACHE_BACKEND=vmm avoids that on devices that support it");
    emit(advising, &sentence);
}

static void advise_misuse(const struct advising *advising, const struct gc_device_snapshot *device)
{
    struct sentence sentence = {.used = 0};
    if (device->invalid_free_count > 0) {
        add_count(&sentence, device->invalid_free_count, " free", " frees");
        add(&sentence, " of addresses without a live allocation: a double free or a wrong "
                       "address; GPUCACHE_DEBUG=uaf reports which");
        emit(advising, &sentence);
    }
    if (device->misuse_count > 0) {
        add_count(&sentence, device->misuse_count, " write", " writes");
        add(&sentence, " to freed memory or past an end: the log on stderr names the blocks");
        emit(advising, &sentence);
    }
}

static bool has_stacks(const struct gc_report *report, uint32_t index)
{
    const struct gc_report_leaks *leaks = report->leaks != NULL ? &report->leaks[index] : NULL;
    char text[GC_STACK_TEXT_BYTES];
    return report->stacks.frame != NULL && leaks != NULL && leaks->count > 0 &&
           leaks->leaks[0].site != 0 &&
           report->stacks.frame(report->stacks.source, leaks->leaks[0].site, 0, text);
}

static bool is_first_with_leaks(const struct gc_report *report, uint32_t index)
{
    while (index > 0 && report->snapshot->devices[index - 1].leak_count == 0)
        index--;
    return index == 0;
}

static void advise_leaks(const struct advising *advising, uint32_t index)
{
    const struct gc_device_snapshot *device = &advising->report->snapshot->devices[index];
    struct sentence sentence = {.used = 0};
    if (device->leak_count == 0)
        return;
    add_count(&sentence, device->leak_count, " allocation", " allocations");
    add(&sentence, " of ");
    add_size(&sentence, device->leak_bytes);
    add(&sentence, device->leak_count == 1 ? " was" : " were");
    add(&sentence, " never freed");
    add_device(&sentence, device);
    if (!has_stacks(advising->report, index) && is_first_with_leaks(advising->report, index))
        add(&sentence, "; GPUCACHE_STACKS=leaks shows their call stacks");
    emit(advising, &sentence);
}

static void advise_stacks(const struct advising *advising)
{
    const uint64_t lost = advising->report->stacks.lost;
    struct sentence sentence = {.used = 0};
    if (lost == 0)
        return;
    add_count(&sentence, lost, " allocation has", " allocations have");
    add(&sentence,
        " no call stack: the table of stacks was full, or the stack could not be captured");
    emit(advising, &sentence);
}

void gc_report_advise(const struct gc_report *report, gc_advice_visit *visit, void *argument)
{
    const struct advising advising = {report, visit, argument};
    const struct gc_snapshot *snapshot = report->snapshot;
    for (uint32_t i = 0; i < snapshot->device_count; i++)
        advise_failures(&advising, &snapshot->devices[i]);
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        advise_spilling(&advising, &snapshot->devices[i]);
        advise_limit(&advising, &snapshot->devices[i]);
        advise_fragmentation(&advising, &snapshot->devices[i]);
        advise_misuse(&advising, &snapshot->devices[i]);
        advise_leaks(&advising, i);
        advise_plan(&advising, &snapshot->devices[i]);
    }
    advise_turns(&advising);
    advise_waits(&advising);
    advise_stacks(&advising);
    for (uint32_t i = 0; i < report->facts.warning_count; i++)
        visit(argument, report->facts.warnings[i]);
}
