/* Advice from the figures: a sentence each, the most urgent first. */
#include "core/base/bits.h"
#include "core/device/tenant.h"
#include "core/io/text.h"
#include "core/observe/stacks.h"
#include "core/report/report.h"
#include "core/report/sentence.h"
#include "core/report/tables.h"

#include <string.h>

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
#define SITE_BYTES 100

struct advising {
    const struct gc_report *report;
    gc_advice_visit *visit;
    void *argument;
};

static void emit(const struct advising *advising, struct gc_sentence *sentence)
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
    struct gc_sentence sentence = {.used = 0};
    uint64_t count = 0;
    for (uint32_t i = 0; i < device->tenant_count; i++) {
        const struct gc_tenant_figures *tenant = &device->tenants[i];
        char name[sizeof(tenant->name)];
        if (tenant->oom_count == 0 || tenant->limit_bytes == UINT64_MAX)
            continue;
        count += tenant->oom_count;
        gc_sentence_add_count(&sentence, tenant->oom_count, " request", " requests");
        gc_sentence_add(&sentence, " of tenant ");
        gc_sentence_add(&sentence,
                        gc_text_printable(tenant->name, strlen(tenant->name), name, sizeof(name)));
        gc_sentence_add(&sentence, " ran out of memory");
        gc_sentence_add_device(&sentence, device);
        gc_sentence_add(&sentence, ": its limit is ");
        gc_sentence_add_size(&sentence, tenant->limit_bytes);
        emit(advising, &sentence);
    }
    return count;
}

/* Reports of earlier versions do not know the sizes of refused requests. */
static void add_refused(struct gc_sentence *sentence, const struct gc_device_snapshot *device)
{
    if (device->refused_bytes == 0)
        return;
    gc_sentence_add(sentence, ", the largest of ");
    gc_sentence_add_size(sentence, device->refused_bytes);
}

static void add_raised_limit(struct gc_sentence *sentence, const struct gc_device_snapshot *device)
{
    if (device->sufficient_bytes <= device->limit_bytes) {
        gc_sentence_add(sentence, ": raise GPUCACHE_LIMIT above ");
        gc_sentence_add_size(sentence, device->limit_bytes);
    } else {
        gc_sentence_add(sentence, ": raise GPUCACHE_LIMIT from ");
        gc_sentence_add_size(sentence, device->limit_bytes);
        gc_sentence_add(sentence, " to at least ");
        gc_sentence_add_size(sentence, gc_text_round_up(device->sufficient_bytes));
    }
    gc_sentence_add(sentence, ", or request less");
}

static void advise_failures(const struct advising *advising,
                            const struct gc_device_snapshot *device)
{
    struct gc_sentence sentence = {.used = 0};
    const uint64_t of_tenants = advise_tenants(advising, device);
    if (device->oom_count <= of_tenants)
        return;
    gc_sentence_add_count(&sentence, device->oom_count - of_tenants, " request", " requests");
    gc_sentence_add(&sentence, " ran out of memory");
    gc_sentence_add_device(&sentence, device);
    if (of_tenants == 0)
        add_refused(&sentence, device);
    if (device->limit_bytes != UINT64_MAX) {
        add_raised_limit(&sentence, device);
    } else if (device->group_limit_bytes != UINT64_MAX) {
        gc_sentence_add(&sentence, ": the limit of its group is ");
        gc_sentence_add_size(&sentence, device->group_limit_bytes);
        gc_sentence_add(
            &sentence, "; raise it with `gpucache limit`, or let requests wait with GPUCACHE_WAIT");
    } else {
        gc_sentence_add(&sentence, ": the program held at most ");
        gc_sentence_add_size(&sentence, device->reserved.peak);
        gc_sentence_add(&sentence, " of ");
        gc_sentence_add_size(&sentence, device->info.total_bytes);
        gc_sentence_add(&sentence,
                        "; the program requested too much, or other programs use the rest");
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

static void add_fitting(struct gc_sentence *sentence, const struct gc_device_snapshot *device,
                        uint64_t fitting)
{
    gc_sentence_add(sentence, "; the peak would fit in about ");
    gc_sentence_add_size(sentence, fitting);
    if (device->context.peak == 0)
        gc_sentence_add(sentence, " plus the context");
}

/* How often the limit was reached, and a limit that would have sufficed. */
static void advise_limit(const struct advising *advising, const struct gc_device_snapshot *device)
{
    struct gc_sentence sentence = {.used = 0};
    const uint64_t fitting = fitting_limit(device);
    const bool is_limited =
        device->limit_bytes != UINT64_MAX || device->group_limit_bytes != UINT64_MAX;
    if (device->retry_count > 0) {
        gc_sentence_add(&sentence, is_limited ? "the limit was reached " : "the device was full ");
        gc_sentence_add_count(&sentence, device->retry_count, " time", " times");
        gc_sentence_add_device(&sentence, device);
        gc_sentence_add(&sentence, "; idle memory was released");
        if (device->oom_count == 0 && device->allocated.peak > 0 && fitting < device->reserved.peak)
            add_fitting(&sentence, device, fitting);
    } else if (could_be_less(device, fitting)) {
        gc_sentence_add_size(&sentence, device->reserved.peak);
        gc_sentence_add(&sentence, " were reserved");
        gc_sentence_add_device(&sentence, device);
        gc_sentence_add(&sentence, ", of which ");
        gc_sentence_add_size(&sentence, device->allocated.peak);
        gc_sentence_add(&sentence, " were in use at most");
        add_fitting(&sentence, device, fitting);
    }
    if (sentence.used > 0)
        emit(advising, &sentence);
}

/* Memory that lay on the host for want of room, and the limit that has room for it. */
static void advise_spilling(const struct advising *advising,
                            const struct gc_device_snapshot *device)
{
    struct gc_sentence sentence = {.used = 0};
    const uint64_t fitting = fitting_limit(device);
    const bool is_limited =
        device->limit_bytes != UINT64_MAX || device->group_limit_bytes != UINT64_MAX;
    if (device->spilled.peak == 0)
        return;
    gc_sentence_add_size(&sentence, device->spilled.peak);
    gc_sentence_add(&sentence, " lay in host memory");
    if (is_limited && fitting <= device->info.total_bytes) {
        gc_sentence_add_device(&sentence, device);
        gc_sentence_add(&sentence, ": a limit of ");
        gc_sentence_add_size(&sentence, fitting);
        gc_sentence_add(&sentence, device->context.peak == 0 ? " plus the context would end it"
                                                             : " would end it");
    } else {
        gc_sentence_add(&sentence, ", which device ");
        gc_sentence_add_number(&sentence, (uint64_t)device->info.ordinal);
        gc_sentence_add(&sentence, " of ");
        gc_sentence_add_size(&sentence, device->info.total_bytes);
        gc_sentence_add(&sentence, " has no room for: request less, or use a larger device");
    }
    emit(advising, &sentence);
}

uint64_t gc_report_unplanned_count(const struct gc_device_snapshot *device)
{
    const struct gc_follow_figures *plan = &device->plan;
    uint64_t count = 0;
#define GC_FOLLOW_REASON(name, key, text) count += plan->key##_count;
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
    return plan->entry_count != 0 && count > (count + plan->followed_count) / 10 ? count : 0;
}

static void advise_plan(const struct advising *advising, const struct gc_device_snapshot *device)
{
    const struct gc_follow_figures *plan = &device->plan;
    const uint64_t count = gc_report_unplanned_count(device);
    struct gc_sentence sentence = {.used = 0};
    uint64_t most = 0;
    const char *why = "";
#define GC_FOLLOW_REASON(name, key, text)                                                          \
    if (plan->key##_count > most) {                                                                \
        most = plan->key##_count;                                                                  \
        why = text;                                                                                \
    }
#include "core/observe/unplanned.def"
#undef GC_FOLLOW_REASON
    if (count == 0)
        return;
    gc_sentence_add_number(&sentence, count);
    gc_sentence_add(&sentence, " of ");
    gc_sentence_add_count(&sentence, count + plan->followed_count, " allocation", " allocations");
    gc_sentence_add(&sentence, " did not follow the plan");
    gc_sentence_add_device(&sentence, device);
    gc_sentence_add(&sentence, ", ");
    gc_sentence_add_number(&sentence, most);
    gc_sentence_add(&sentence, " of them: ");
    gc_sentence_add(&sentence, why);
    gc_sentence_add(&sentence, "; make a plan of this run with GPUCACHE_TRACE and gpucache plan");
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
bool gc_report_waits_for_turns(const struct gc_report *report)
{
    const struct gc_snapshot *snapshot = report->snapshot;
    const uint64_t ran_ns = report->facts.duration_ns;
    return snapshot->takes_turns && ran_ns != 0 && snapshot->turn.exchange_count != 0 &&
           snapshot->turn.waited_ns >= ran_ns / 100 * WAITED_PERCENT_MIN;
}

static void advise_turns(const struct advising *advising)
{
    const struct gc_snapshot *snapshot = advising->report->snapshot;
    const uint64_t ran_ns = advising->report->facts.duration_ns;
    const struct gc_ledger_turn *turn = &snapshot->turn;
    struct gc_sentence sentence = {.used = 0};
    if (!gc_report_waits_for_turns(advising->report))
        return;
    gc_sentence_add(&sentence, "its memory was swapped ");
    gc_sentence_add_count(&sentence, turn->exchange_count, " time", " times");
    gc_sentence_add(&sentence, ", and it waited ");
    gc_sentence_add_number(&sentence,
                           (uint64_t)((unsigned __int128)turn->waited_ns * 100 / ran_ns));
    gc_sentence_add(&sentence, " % of the run for its turns: ");
    if (swapped_peak(snapshot) != 0) {
        gc_sentence_add_size(&sentence, gc_text_round_up(swapped_peak(snapshot)));
        gc_sentence_add(&sentence, " more in GPUCACHE_GROUP_LIMIT, or ");
    }
    gc_sentence_add(&sentence, "one process less in the group would keep it on the device");
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
bool gc_report_frees_wait(const struct gc_report *report)
{
    const struct gc_report_facts *facts = &report->facts;
    const struct gc_latency *frees = &report->snapshot->free_latency;
    return facts->reuse != NULL && strcmp(facts->reuse, "sync") == 0 &&
           !is_set(facts, "GPUCACHE_DEBUG") && frees->count != 0 && frees->p50 >= WAIT_NS_MIN;
}

static void advise_waits(const struct advising *advising)
{
    const struct gc_latency *frees = &advising->report->snapshot->free_latency;
    struct gc_sentence sentence = {.used = 0};
    if (!gc_report_frees_wait(advising->report))
        return;
    gc_sentence_add(&sentence, "frees wait for the device (GPUCACHE_REUSE=sync), p50 ");
    gc_sentence_add_span(&sentence, frees->p50);
    gc_sentence_add(&sentence, " of ");
    gc_sentence_add_count(&sentence, frees->count, " free", " frees");
    gc_sentence_add(&sentence, "; GPUCACHE_REUSE=fence, the default, does not wait");
    emit(advising, &sentence);
}

uint64_t gc_report_fragmented_bytes(const struct gc_device_snapshot *device)
{
    return !device->is_mapped && device->free_bytes >= FRAGMENTED_BYTES_MIN &&
                   device->largest_free_bytes < device->free_bytes / 4
               ? device->free_bytes
               : 0;
}

static void advise_fragmentation(const struct advising *advising,
                                 const struct gc_device_snapshot *device)
{
    struct gc_sentence sentence = {.used = 0};
    if (gc_report_fragmented_bytes(device) == 0)
        return;
    gc_sentence_add_size(&sentence, device->free_bytes);
    gc_sentence_add(&sentence, " are free in the cache");
    gc_sentence_add_device(&sentence, device);
    gc_sentence_add(&sentence, ", the largest free block ");
    gc_sentence_add_size(&sentence, device->largest_free_bytes);
    gc_sentence_add(&sentence, ": GPUCACHE_BACKEND=vmm avoids that on devices that support it");
    emit(advising, &sentence);
}

static void advise_misuse(const struct advising *advising, const struct gc_device_snapshot *device)
{
    struct gc_sentence sentence = {.used = 0};
    if (device->misuse_count > 0) {
        gc_sentence_add_count(&sentence, device->misuse_count, " write", " writes");
        gc_sentence_add(&sentence,
                        " to freed memory or past an end: the log on stderr names the blocks");
        emit(advising, &sentence);
    }
    if (device->invalid_free_count > 0) {
        gc_sentence_add_count(&sentence, device->invalid_free_count, " free", " frees");
        gc_sentence_add(&sentence,
                        " of addresses without a live allocation: a double free or a wrong "
                        "address; GPUCACHE_DEBUG=uaf reports which");
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

void gc_report_add_leak_site(struct gc_sentence *sentence, const struct gc_report *report,
                             uint32_t device)
{
    const uint64_t all = report->snapshot->devices[device].leak_count;
    const struct gc_report_leaks *leaks = report->leaks != NULL ? &report->leaks[device] : NULL;
    char text[GC_STACK_TEXT_BYTES];
    uint32_t i = 0;
    while (leaks != NULL && i < leaks->group_count &&
           !gc_report_short_frame(report, leaks->groups[i].site, text))
        i++;
    if (leaks == NULL || i == leaks->group_count)
        return;
    const struct gc_leak_group *group = &leaks->groups[i];
    if (group->count < all) {
        gc_sentence_add(sentence, ", ");
        gc_sentence_add_number(sentence, group->count);
        gc_sentence_add(sentence, " of them, ");
        gc_sentence_add_size(sentence, group->bytes);
    } else if (all > 1) {
        gc_sentence_add(sentence, ", all of them");
    }
    gc_sentence_add(sentence, ", at ");
    gc_sentence_add_foreign(sentence, text, SITE_BYTES);
}

static void advise_leaks(const struct advising *advising, uint32_t index)
{
    const struct gc_device_snapshot *device = &advising->report->snapshot->devices[index];
    struct gc_sentence sentence = {.used = 0};
    if (device->leak_count == 0)
        return;
    gc_sentence_add_count(&sentence, device->leak_count, " allocation", " allocations");
    gc_sentence_add(&sentence, " of ");
    gc_sentence_add_size(&sentence, device->leak_bytes);
    gc_sentence_add(&sentence, device->leak_count == 1 ? " was" : " were");
    gc_sentence_add(&sentence, " never freed");
    gc_sentence_add_device(&sentence, device);
    if (!has_stacks(advising->report, index) && is_first_with_leaks(advising->report, index))
        gc_sentence_add(&sentence, "; GPUCACHE_STACKS=leaks shows their call stacks");
    gc_report_add_leak_site(&sentence, advising->report, index);
    emit(advising, &sentence);
}

static void advise_stacks(const struct advising *advising)
{
    const uint64_t lost = advising->report->stacks.lost;
    struct gc_sentence sentence = {.used = 0};
    if (lost == 0)
        return;
    gc_sentence_add_count(&sentence, lost, " allocation has", " allocations have");
    gc_sentence_add(
        &sentence,
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
        advise_misuse(&advising, &snapshot->devices[i]);
        advise_leaks(&advising, i);
        advise_fragmentation(&advising, &snapshot->devices[i]);
        advise_spilling(&advising, &snapshot->devices[i]);
        advise_plan(&advising, &snapshot->devices[i]);
        advise_limit(&advising, &snapshot->devices[i]);
    }
    advise_turns(&advising);
    advise_waits(&advising);
    advise_stacks(&advising);
    for (uint32_t i = 0; i < report->facts.warning_count; i++)
        visit(argument, report->facts.warnings[i]);
}
