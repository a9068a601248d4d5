/* What the figures ask to be done: a sentence each, in the order of what hurts most. */
#include "core/bits.h"
#include "core/report.h"
#include "core/text.h"

#include <string.h>

#define SENTENCE_BYTES 400
/* Room that a peak needs beyond what is live: rounding to pages, and holes where memory is not
 * mapped. In hundredths; docs/report.md says where they are from. */
#define SLACK_MAPPED 5
#define SLACK_SEGMENTS 20
#define HOLES_BYTES_MIN (UINT64_C(64) << 20)

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

static void give(const struct advising *advising, struct sentence *sentence)
{
    advising->visit(advising->argument, sentence->text);
    sentence->used = 0;
}

/* ---- sentences ---- */

/* Up to a tenth of its unit. */
static uint64_t round_up(uint64_t bytes)
{
    unsigned shift = 0;
    while (shift < 40 && bytes >> (shift + 10) != 0)
        shift += 10;
    const uint64_t step = ((UINT64_C(1) << shift) + 9) / 10;
    uint64_t rounded;
    if (shift == 0 || !gc_add_u64(bytes, step - 1, &rounded))
        return bytes;
    return rounded / step * step;
}

static uint64_t fitting_limit(const struct gc_device_snapshot *device)
{
    const unsigned slack = device->is_mapped ? SLACK_MAPPED : SLACK_SEGMENTS;
    const unsigned __int128 wanted =
        (unsigned __int128)device->allocated.peak * (100 + slack) / 100;
    const unsigned __int128 whole = wanted + device->context.peak;
    return whole > UINT64_MAX / 2 ? UINT64_MAX / 2 : round_up((uint64_t)whole);
}

static void advise_failures(const struct advising *advising,
                            const struct gc_device_snapshot *device)
{
    struct sentence sentence = {.used = 0};
    if (device->oom_count == 0)
        return;
    add_count(&sentence, device->oom_count, " request", " requests");
    add(&sentence, " found no room");
    add_device(&sentence, device);
    if (device->limit_bytes != UINT64_MAX) {
        add(&sentence, ": raise GPUCACHE_LIMIT above ");
        add_size(&sentence, device->limit_bytes);
        add(&sentence, ", or ask for less");
    } else if (device->group_limit_bytes != UINT64_MAX) {
        add(&sentence, ": its group is held to ");
        add_size(&sentence, device->group_limit_bytes);
        add(&sentence, "; `gpucache limit` raises that, GPUCACHE_WAIT lets them wait");
    } else {
        add(&sentence, ": the program needs more than the device has");
    }
    give(advising, &sentence);
}

/* The limit was met and held: how often, and what would have done. */
static void advise_limit(const struct advising *advising, const struct gc_device_snapshot *device)
{
    struct sentence sentence = {.used = 0};
    const uint64_t fitting = fitting_limit(device);
    const bool is_limited =
        device->limit_bytes != UINT64_MAX || device->group_limit_bytes != UINT64_MAX;
    const bool could_be_less =
        device->oom_count == 0 && device->allocated.peak > 0 && fitting < device->reserved.peak;
    if (device->retry_count > 0) {
        add(&sentence, is_limited ? "the limit was reached " : "the device was full ");
        add_count(&sentence, device->retry_count, " time", " times");
        add_device(&sentence, device);
        add(&sentence, "; idle cache was trimmed");
    }
    if (could_be_less) {
        add(&sentence, sentence.used > 0 ? "; the peak would fit in " : "");
        if (device->retry_count == 0) {
            add_size(&sentence, device->reserved.peak);
            add(&sentence, " were held");
            add_device(&sentence, device);
            add(&sentence, ", of which ");
            add_size(&sentence, device->allocated.peak);
            add(&sentence, " were in use at most; the peak would fit in ");
        }
        add_size(&sentence, fitting);
    }
    if (sentence.used > 0)
        give(advising, &sentence);
}

static void advise_holes(const struct advising *advising, const struct gc_device_snapshot *device)
{
    struct sentence sentence = {.used = 0};
    if (device->is_mapped || device->free_bytes < HOLES_BYTES_MIN ||
        device->largest_free_bytes >= device->free_bytes / 4)
        return;
    add_size(&sentence, device->free_bytes);
    add(&sentence, " are free in the cache");
    add_device(&sentence, device);
    add(&sentence, ", the largest hole ");
    add_size(&sentence, device->largest_free_bytes);
    add(&sentence, ": GPUCACHE_BACKEND=vmm makes one of them, where the device can");
    give(advising, &sentence);
}

static void advise_misuse(const struct advising *advising, const struct gc_device_snapshot *device)
{
    struct sentence sentence = {.used = 0};
    if (device->invalid_free_count > 0) {
        add_count(&sentence, device->invalid_free_count, " free", " frees");
        add(&sentence, " of what was no live allocation: freed twice, or a wrong address; "
                       "GPUCACHE_DEBUG=uaf finds out");
        give(advising, &sentence);
    }
    if (device->misuse_count > 0) {
        add_count(&sentence, device->misuse_count, " write", " writes");
        add(&sentence, " to freed memory or past an end: the log on stderr names the blocks");
        give(advising, &sentence);
    }
    if (device->leak_count > 0) {
        add_count(&sentence, device->leak_count, " allocation was", " allocations were");
        add(&sentence, " never freed");
        add_device(&sentence, device);
        add(&sentence, ": see the list");
        give(advising, &sentence);
    }
}

void gc_report_advise(const struct gc_report *report, gc_advice_visit *visit, void *argument)
{
    const struct advising advising = {report, visit, argument};
    const struct gc_snapshot *snapshot = report->snapshot;
    for (uint32_t i = 0; i < snapshot->device_count; i++)
        advise_failures(&advising, &snapshot->devices[i]);
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        advise_limit(&advising, &snapshot->devices[i]);
        advise_holes(&advising, &snapshot->devices[i]);
        advise_misuse(&advising, &snapshot->devices[i]);
    }
    for (uint32_t i = 0; i < report->facts.warning_count; i++)
        visit(argument, report->facts.warnings[i]);
}
