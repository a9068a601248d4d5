/* The verdict: the first problem of verdicts.def that the figures show, of the device that has most
 * of it. */
#include "core/report/report.h"
#include "core/report/sentence.h"
#include "core/report/tables.h"

#include "core/base/bits.h"

#include <string.h>

typedef uint64_t measure(const struct gc_device_snapshot *device);

/* The device with the highest measure, the first of equal ones; NULL: all are 0. */
static const struct gc_device_snapshot *worst(const struct gc_report *report, measure *of)
{
    const struct gc_device_snapshot *found = NULL;
    for (uint32_t i = 0; i < report->snapshot->device_count; i++) {
        const struct gc_device_snapshot *device = &report->snapshot->devices[i];
        if (of(device) > (found != NULL ? of(found) : 0))
            found = device;
    }
    return found;
}

/* "on device 0", and how many other devices have the problem. */
static void add_place(struct gc_sentence *text, const struct gc_report *report,
                      const struct gc_device_snapshot *device, measure *of)
{
    uint64_t others = 0;
    for (uint32_t i = 0; i < report->snapshot->device_count; i++)
        others += &report->snapshot->devices[i] != device && of(&report->snapshot->devices[i]) > 0;
    gc_sentence_add_device(text, device);
    if (others > 0) {
        gc_sentence_add(text, " (and ");
        gc_sentence_add_count(text, others, " other)", " others)");
    }
}

static uint64_t of_refused(const struct gc_device_snapshot *device)
{
    return device->oom_count;
}

static bool judge_refused(const struct gc_report *report, struct gc_sentence *text)
{
    const struct gc_device_snapshot *device = worst(report, of_refused);
    if (device == NULL)
        return false;
    gc_sentence_add(text, "out of memory: ");
    gc_sentence_add_count(text, device->oom_count, " request", " requests");
    gc_sentence_add(text, " refused");
    add_place(text, report, device, of_refused);
    if (device->limit_bytes != UINT64_MAX) {
        gc_sentence_add(text, ", limit ");
        gc_sentence_add_size(text, device->limit_bytes);
    } else if (device->group_limit_bytes != UINT64_MAX) {
        gc_sentence_add(text, ", limit of its group ");
        gc_sentence_add_size(text, device->group_limit_bytes);
    } else {
        gc_sentence_add(text, " of ");
        gc_sentence_add_size(text, device->info.total_bytes);
    }
    return true;
}

static uint64_t of_misuse(const struct gc_device_snapshot *device)
{
    return device->misuse_count;
}

static bool judge_misuse(const struct gc_report *report, struct gc_sentence *text)
{
    const struct gc_device_snapshot *device = worst(report, of_misuse);
    if (device == NULL)
        return false;
    gc_sentence_add_count(text, device->misuse_count, " write", " writes");
    gc_sentence_add(text, " to freed memory or past an end");
    add_place(text, report, device, of_misuse);
    return true;
}

static uint64_t of_invalid_frees(const struct gc_device_snapshot *device)
{
    return device->invalid_free_count;
}

static bool judge_invalid_free(const struct gc_report *report, struct gc_sentence *text)
{
    const struct gc_device_snapshot *device = worst(report, of_invalid_frees);
    if (device == NULL)
        return false;
    gc_sentence_add_count(text, device->invalid_free_count, " invalid free", " invalid frees");
    add_place(text, report, device, of_invalid_frees);
    return true;
}

static uint64_t of_leaks(const struct gc_device_snapshot *device)
{
    return device->leak_count > 0 ? gc_max_u64(device->leak_bytes, 1) : 0;
}

static bool judge_leak(const struct gc_report *report, struct gc_sentence *text)
{
    const struct gc_device_snapshot *device = worst(report, of_leaks);
    if (device == NULL)
        return false;
    gc_sentence_add_count(text, device->leak_count, " leak of ", " leaks of ");
    gc_sentence_add_size(text, device->leak_bytes);
    add_place(text, report, device, of_leaks);
    gc_report_add_leak_site(text, report, (uint32_t)(device - report->snapshot->devices));
    return true;
}

static bool judge_fragmentation(const struct gc_report *report, struct gc_sentence *text)
{
    const struct gc_device_snapshot *device = worst(report, gc_report_fragmented_bytes);
    if (device == NULL)
        return false;
    gc_sentence_add_size(text, device->free_bytes);
    gc_sentence_add(text, " are free in pieces of at most ");
    gc_sentence_add_size(text, device->largest_free_bytes);
    add_place(text, report, device, gc_report_fragmented_bytes);
    return true;
}

static bool judge_gate(const struct gc_report *report, struct gc_sentence *text)
{
    const struct gc_report_estimate *estimate = report->facts.estimate;
    if (estimate == NULL || estimate->fits)
        return false;
    gc_sentence_add(text, "the model's estimate of ");
    gc_sentence_add_size(text, estimate->sizes.peak_bytes);
    gc_sentence_add(text, " exceeds its budget");
    if (estimate->budget_bytes != UINT64_MAX) {
        gc_sentence_add(text, " of ");
        gc_sentence_add_size(text, estimate->budget_bytes);
    }
    return true;
}

static bool judge_swapped(const struct gc_report *report, struct gc_sentence *text)
{
    const struct gc_ledger_turn *turn = &report->snapshot->turn;
    if (!gc_report_waits_for_turns(report))
        return false;
    gc_sentence_add(text, "waited for its turns ");
    gc_sentence_add_number(
        text, (uint64_t)((unsigned __int128)turn->waited_ns * 100 / report->facts.duration_ns));
    gc_sentence_add(text, " % of the run, its memory swapped ");
    gc_sentence_add_count(text, turn->exchange_count, " time", " times");
    return true;
}

static uint64_t of_spilled(const struct gc_device_snapshot *device)
{
    return device->spilled.peak;
}

static bool judge_spilled(const struct gc_report *report, struct gc_sentence *text)
{
    const struct gc_device_snapshot *device = worst(report, of_spilled);
    if (device == NULL)
        return false;
    gc_sentence_add_size(text, device->spilled.peak);
    gc_sentence_add(text, " lay in host memory for want of room");
    add_place(text, report, device, of_spilled);
    return true;
}

static bool judge_plan(const struct gc_report *report, struct gc_sentence *text)
{
    const struct gc_device_snapshot *device = worst(report, gc_report_unplanned_count);
    if (device == NULL)
        return false;
    const uint64_t count = gc_report_unplanned_count(device);
    gc_sentence_add_number(text, count);
    gc_sentence_add(text, " of ");
    gc_sentence_add_count(text, count + device->plan.followed_count, " allocation", " allocations");
    gc_sentence_add(text, " did not follow the plan");
    add_place(text, report, device, gc_report_unplanned_count);
    return true;
}

static bool judge_waits(const struct gc_report *report, struct gc_sentence *text)
{
    if (!gc_report_frees_wait(report))
        return false;
    gc_sentence_add(text, "frees wait for the device, half of them ");
    gc_sentence_add_span(text, report->snapshot->free_latency.p50);
    gc_sentence_add(text, " and more");
    return true;
}

static uint64_t of_retried(const struct gc_device_snapshot *device)
{
    return device->retry_count;
}

static bool judge_retried(const struct gc_report *report, struct gc_sentence *text)
{
    const struct gc_device_snapshot *device = worst(report, of_retried);
    if (device == NULL)
        return false;
    gc_sentence_add_count(text, device->retry_count, " request", " requests");
    gc_sentence_add(text, " waited for idle memory to be released");
    add_place(text, report, device, of_retried);
    return true;
}

static bool judge_none(const struct gc_report *report, struct gc_sentence *text)
{
    gc_sentence_add(text, "no problem found");
    if (report->facts.warning_count > 0) {
        gc_sentence_add(text, "; ");
        gc_sentence_add_count(text, report->facts.warning_count, " warning", " warnings");
    }
    return true;
}

enum gc_verdict_kind gc_report_judge(const struct gc_report *report, char text[GC_VERDICT_BYTES])
{
    static bool (*const judges[])(const struct gc_report *report, struct gc_sentence *text) = {
#define GC_VERDICT(name, key, judge) judge,
#include "core/report/verdicts.def"
#undef GC_VERDICT
    };
    struct gc_sentence sentence = {.used = 0};
    unsigned kind = 0;
    while (kind < GC_VERDICT_NONE && !judges[kind](report, &sentence))
        kind++;
    if (kind == GC_VERDICT_NONE)
        (void)judge_none(report, &sentence);
    (void)gc_text_printable(sentence.text, sentence.used, text, GC_VERDICT_BYTES);
    return (enum gc_verdict_kind)kind;
}
