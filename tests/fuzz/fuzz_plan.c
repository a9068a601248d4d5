/* A plan file of anyone's making: read with the checksum it has, and with the right one, so that
 * what lies behind it is reached. An accepted plan keeps every rule, and allocations are matched to
 * it.
 */
#include "core/plan/lifetimes.h"
#include "core/plan/match.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* At the start of either life, or of an iteration, into which both go over. */
static bool overlap(const struct gc_plan *plan, const struct gc_plan_entry *a,
                    const struct gc_plan_entry *b)
{
    const bool alive_together = gc_lifetimes_is_long(plan, a, b->lower) ||
                                gc_lifetimes_is_long(plan, b, a->lower) ||
                                (gc_lifetimes_is_long(plan, a, plan->loop_time) &&
                                 gc_lifetimes_is_long(plan, b, plan->loop_time));
    return alive_together && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static void check(const struct gc_plan *plan)
{
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct gc_plan_entry *entry = &plan->entries[i];
        if (entry->bytes == 0 || entry->bytes > plan->peak_bytes ||
            entry->offset > plan->peak_bytes - entry->bytes || entry->stream >= plan->stream_count)
            abort();
        for (uint32_t k = 0; k < i; k++) {
            if (overlap(plan, entry, &plan->entries[k]))
                abort();
        }
    }
}

/* No moment at which an entry begins is fuller than the fullest. */
static void live(const struct gc_plan *plan)
{
    struct gc_host_mem host = {0};
    uint32_t fullest;
    uint64_t most = 0;
    if (gc_lifetimes_find_peak(plan, &host, &fullest) != GC_OK)
        return;
    for (uint32_t i = 0; i < plan->count; i++)
        most += gc_lifetimes_is_long(plan, &plan->entries[i], fullest) ? plan->entries[i].bytes : 0;
    for (uint32_t k = 0; k < plan->count && plan->count < 300; k++) {
        uint64_t alive = 0;
        for (uint32_t i = 0; i < plan->count; i++)
            alive += gc_lifetimes_is_long(plan, &plan->entries[i], plan->entries[k].lower)
                         ? plan->entries[i].bytes
                         : 0;
        if (alive > most)
            abort();
    }
    if (gc_host_mem_bytes(&host) != 0)
        abort();
}

/* Its own sizes, with some left out, doubled and of other streams. */
static void follow(const struct gc_plan *plan)
{
    struct gc_host_mem host = {0};
    struct gc_match match;
    if (gc_match_init(&match, plan, &host) != GC_OK)
        return;
    for (uint32_t n = 0; n < 3 * plan->count + 50; n++) {
        const struct gc_plan_entry *entry = &plan->entries[(n + n / 7) % plan->count];
        const uint64_t stream = n % 11 == 5 ? n : entry->stream * UINT64_C(16);
        const uint32_t found = gc_match_next(&match, entry->bytes, stream, n % 13 == 12);
        if (found != GC_PLAN_NONE &&
            (found >= plan->count || plan->entries[found].bytes != entry->bytes))
            abort();
        const uint32_t alike = gc_match_guess(&match, entry->bytes + n % 5 * GC_PLAN_UNIT_BYTES);
        if (alike != GC_PLAN_NONE && alike >= plan->count)
            abort();
        if (n % 29 == 28)
            gc_match_close_stream(&match, stream);
    }
    gc_match_fini(&match);
    if (gc_host_mem_bytes(&host) != 0)
        abort();
}

static void take(const void *data, size_t bytes)
{
    struct gc_region region;
    struct gc_plan plan;
    struct gc_plan_error error;
    gc_region_init(&region, GC_PLAN_REGION_BYTES_MAX);
    const enum gc_status status = gc_plan_read(&region, data, bytes, &plan, &error);
    if (status == GC_OK) {
        check(&plan);
        live(&plan);
        follow(&plan);
    } else if (error.text[0] == '\0' && status != GC_NO_HOST_MEMORY) {
        abort();
    }
    gc_region_fini(&region);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct gc_plan_header header;
    take(data, bytes);
    if (bytes < sizeof(header))
        return 0;
    uint8_t *copy = malloc(bytes);
    if (copy == NULL)
        return 0;
    memcpy(copy, data, bytes);
    memcpy(&header, copy, sizeof(header));
    header.count = (uint32_t)((bytes - sizeof(header)) / sizeof(struct gc_plan_entry));
    header.checksum = gc_plan_checksum(&header, copy + sizeof(header));
    memcpy(copy, &header, sizeof(header));
    take(copy, sizeof(header) + header.count * sizeof(struct gc_plan_entry));
    free(copy);
    return 0;
}
