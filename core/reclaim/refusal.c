/* Refused requests. If neither the driver nor the tenant's addresses refused the request, the
 * limits are tested as a charge meets them: the tenant's, the process's, the group's. Where all of
 * them have room by now, memory was released since. */
#include "core/reclaim/refusal.h"

#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/device/registry.h"
#include "core/device/tenant.h"
#include "core/io/log.h"
#include "core/io/text.h"
#include "core/reclaim/leave.h"

#include <stdio.h>
#include <string.h>

#define REPEAT_NS (60 * GC_NS_PER_S)
#define USE_BYTES 256
#define TEXT_BYTES 512

struct refusal {
    struct gc_device *device;
    struct gc_quota *quota;
    uint64_t requested_bytes;
    uint64_t charge_bytes;
    const struct gc_charge_failure *failure;
};

/* ---- figures ---- */

static uint64_t largest_free(const struct refusal *refusal)
{
    uint64_t largest = 0;
    for (struct gc_context *context = gc_context_first(refusal->device); context != NULL;
         context = gc_context_next(context)) {
        if (context->quota != refusal->quota)
            continue;
        gc_pool_acquire_plain(&context->pool);
        largest = gc_max_u64(largest, gc_pool_measure_locked(&context->pool).largest_bytes);
        gc_pool_release(&context->pool);
    }
    return largest;
}

static uint64_t current_of(const struct gc_gauge_cell *cell)
{
    struct gc_gauge gauge;
    gc_stats_read_gauge(cell, &gauge);
    return gauge.current;
}

/* "live 7.2 GiB, idle 0 B, largest free 0 B", and what else there is. */
static void describe_use(const struct refusal *refusal, const struct gc_quota *quota,
                         char text[USE_BYTES])
{
    const struct gc_device *device = refusal->device;
    const struct gc_stats *stats = &device->stats;
    const uint64_t held =
        quota != NULL ? gc_budget_held(&quota->budget) : gc_budget_held(&device->budget);
    const uint64_t live = current_of(quota != NULL ? &quota->allocated : &stats->allocated);
    const uint64_t idle = gc_idle_bytes(quota != NULL ? &quota->idle : &device->idle);
    const uint64_t pending = quota != NULL ? 0 : current_of(&stats->pending);
    const uint64_t away = atomic_load_explicit(&device->budget.away, memory_order_relaxed);
    const uint64_t rest = gc_sub_or_zero_u64(held, live + idle + pending);
    int used = snprintf(text, USE_BYTES, "live %s, idle %s, largest free %s", GC_TEXT_SIZE(live),
                        GC_TEXT_SIZE(idle), GC_TEXT_SIZE(largest_free(refusal)));
    if (pending > 0)
        used += snprintf(text + used, USE_BYTES - (size_t)used, ", freed but in use %s",
                         GC_TEXT_SIZE(pending));
    if (rest >= GC_MIB(1))
        used += snprintf(text + used, USE_BYTES - (size_t)used, ", contexts and other memory %s",
                         GC_TEXT_SIZE(rest));
    if (away > 0 && quota == NULL)
        snprintf(text + used, USE_BYTES - (size_t)used, ", swapped out %s", GC_TEXT_SIZE(away));
}

/* ---- the bounds ---- */

/* True, with the sum, if the held bytes and the charge exceed the limit. */
static bool exceeds(uint64_t held, uint64_t charge, uint64_t limit, uint64_t *sum)
{
    return limit != UINT64_MAX && (!gc_add_u64(held, charge, sum) || *sum > limit);
}

/* The value of the limit that would have sufficed, if the device is large enough. */
static void add_remedy(const struct refusal *refusal, uint64_t sum, char text[TEXT_BYTES])
{
    const uint64_t total_bytes = refusal->device->info.total_bytes;
    const size_t used = strlen(text);
    if (sum > total_bytes)
        snprintf(text + used, TEXT_BYTES - used, "; with these %s, and the device has %s",
                 GC_TEXT_SIZE(gc_text_round_up(sum)), GC_TEXT_SIZE(total_bytes));
    else
        snprintf(text + used, TEXT_BYTES - used, "; %s would have done",
                 GC_TEXT_SIZE(gc_text_round_up(sum)));
}

static const char *tenant_of(const struct refusal *refusal)
{
    for (struct gc_context *context = gc_context_first(refusal->device); context != NULL;
         context = gc_context_next(context))
        if (context->tenant != NULL && context->quota == refusal->quota)
            return gc_tenant_name(context->tenant);
    return "";
}

static bool explain_addresses(const struct refusal *refusal, char text[TEXT_BYTES])
{
    char use[USE_BYTES];
    if (refusal->quota == NULL || !refusal->failure->is_range_short)
        return false;
    describe_use(refusal, refusal->quota, use);
    snprintf(text, TEXT_BYTES,
             "addresses for %s of tenant %.63s, %s; a larger capacity would have done",
             GC_TEXT_SIZE(refusal->quota->capacity_bytes), tenant_of(refusal), use);
    return true;
}

static bool explain_tenant(const struct refusal *refusal, char text[TEXT_BYTES])
{
    const struct gc_options *options = refusal->device->core->options;
    const struct gc_budget *budget = refusal->quota != NULL ? &refusal->quota->budget : NULL;
    char use[USE_BYTES];
    uint64_t sum;
    if (budget == NULL ||
        !exceeds(gc_budget_held(budget), refusal->charge_bytes, gc_budget_limit(budget), &sum))
        return false;
    describe_use(refusal, refusal->quota, use);
    snprintf(text, TEXT_BYTES, "limit %s of tenant %.63s (%s), %s",
             GC_TEXT_SIZE(gc_budget_limit(budget)), tenant_of(refusal),
             gc_options_is_set(options, GC_OPTION_TENANTS) ? "GPUCACHE_TENANTS" : "its own", use);
    add_remedy(refusal, sum, text);
    return true;
}

static uint64_t resolve(const struct gc_device *device, const struct gc_size_spec *spec)
{
    return gc_size_spec_resolve(spec, device->info.ordinal, device->info.uuid,
                                device->info.total_bytes);
}

/* The setting that a limit comes from. */
static const char *source_of(const struct gc_device *device, uint64_t limit)
{
    const struct gc_options *options = device->core->options;
    if (limit == resolve(device, &options->limit))
        return gc_options_is_set(options, GC_OPTION_LIMIT) ? "GPUCACHE_LIMIT"
                                                           : "CUDA_DEVICE_MEMORY_LIMIT";
    return limit == resolve(device, &options->group_limit) ? "GPUCACHE_GROUP_LIMIT"
                                                           : "gpucache limit";
}

static bool explain_process(const struct refusal *refusal, char text[TEXT_BYTES])
{
    const struct gc_device *device = refusal->device;
    const struct gc_budget *budget = &device->budget;
    const uint64_t limit = gc_budget_limit(budget);
    char use[USE_BYTES];
    uint64_t held, sum;
    if (!gc_add_u64(gc_budget_held(budget), limit - gc_budget_room(budget), &held) ||
        !exceeds(held, refusal->charge_bytes, limit, &sum))
        return false;
    describe_use(refusal, NULL, use);
    snprintf(text, TEXT_BYTES, "limit %s (%s), %s", GC_TEXT_SIZE(limit), source_of(device, limit),
             use);
    add_remedy(refusal, sum, text);
    return true;
}

static bool explain_group(const struct refusal *refusal, char text[TEXT_BYTES])
{
    const struct gc_core *core = refusal->device->core;
    struct gc_account *account = refusal->device->budget.account;
    const uint64_t limit = account != NULL ? gc_account_limit(account) : UINT64_MAX;
    char use[USE_BYTES];
    uint64_t sum;
    const uint64_t kept = account != NULL ? gc_account_kept(account, refusal->charge_bytes) : 0;
    if (account == NULL ||
        !exceeds(gc_account_held(account) + kept, refusal->charge_bytes, limit, &sum))
        return false;
    const uint64_t own = gc_account_of(account, account->ledger->own);
    describe_use(refusal, NULL, use);
    snprintf(text, TEXT_BYTES, "limit %s of group %.63s (%s), %s, other processes %s",
             GC_TEXT_SIZE(limit), core->options->group,
             limit == resolve(refusal->device, &core->options->group_limit)
                 ? "GPUCACHE_GROUP_LIMIT"
                 : "gpucache limit, or its first process",
             use, GC_TEXT_SIZE(gc_sub_or_zero_u64(gc_account_held(account), own)));
    if (kept > 0)
        snprintf(text + strlen(text), TEXT_BYTES - strlen(text), ", kept for their guarantees %s",
                 GC_TEXT_SIZE(kept));
    add_remedy(refusal, sum, text);
    return true;
}

static bool explain_size(const struct refusal *refusal, char text[TEXT_BYTES])
{
    const uint64_t total_bytes = refusal->device->info.total_bytes;
    snprintf(text, TEXT_BYTES, "the device has %s", GC_TEXT_SIZE(total_bytes));
    return refusal->charge_bytes > total_bytes;
}

static bool explain_limits(const struct refusal *refusal, char text[TEXT_BYTES])
{
    return !refusal->failure->is_driver_short &&
           (explain_addresses(refusal, text) || explain_tenant(refusal, text) ||
            explain_process(refusal, text) || explain_group(refusal, text));
}

/* The reason where the device has room. */
static const char *reason_of(const struct refusal *refusal)
{
    return refusal->failure->is_driver_short ? "the driver refused it all the same"
                                             : "a limit had no room for it, and has by now";
}

static void explain_device(const struct refusal *refusal, char text[TEXT_BYTES])
{
    struct gc_device *device = refusal->device;
    uint64_t free_bytes = 0, total_bytes = device->info.total_bytes;
    char use[USE_BYTES];
    int code;
    describe_use(refusal, NULL, use);
    if (!gc_leave_read(device, &free_bytes, &total_bytes, &code)) {
        snprintf(text, TEXT_BYTES, "the driver has no memory left, %s", use);
    } else {
        const uint64_t held = gc_budget_held(&device->budget);
        const uint64_t used = gc_sub_or_zero_u64(total_bytes, free_bytes);
        const uint64_t lacking = gc_sub_or_zero_u64(refusal->charge_bytes, free_bytes);
        /* Without a limit contexts are not measured. */
        const bool has_limit = gc_device_limit_bytes(device) != UINT64_MAX;
        snprintf(text, TEXT_BYTES, "the device has %s free of %s, %s, other processes%s %s; %s",
                 GC_TEXT_SIZE(free_bytes), GC_TEXT_SIZE(total_bytes), use,
                 has_limit ? "" : " and contexts", GC_TEXT_SIZE(gc_sub_or_zero_u64(used, held)),
                 lacking == 0 ? reason_of(refusal) : "");
        if (lacking > 0)
            snprintf(text + strlen(text), TEXT_BYTES - strlen(text), "%s more would have done",
                     GC_TEXT_SIZE(gc_text_round_up(lacking)));
    }
}

/* ---- the line ---- */

/* True for the first refusal, then at most once a minute; *skipped: refusals without a line. */
static bool is_due(struct gc_device *device, uint64_t *skipped)
{
    const uint64_t now = gc_core_now_ns(device->core);
    uint64_t last = atomic_load_explicit(&device->refusal_ns, memory_order_relaxed);
    if ((last != 0 && now - last < REPEAT_NS) ||
        !atomic_compare_exchange_strong_explicit(&device->refusal_ns, &last, now,
                                                 memory_order_relaxed, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&device->refusals_skipped, 1, memory_order_relaxed);
        return false;
    }
    *skipped = atomic_exchange_explicit(&device->refusals_skipped, 0, memory_order_relaxed);
    return true;
}

static void log_refusal(const struct refusal *refusal, uint64_t skipped)
{
    char text[TEXT_BYTES], more[64] = "";
    if (!explain_size(refusal, text) && !explain_limits(refusal, text))
        explain_device(refusal, text);
    if (skipped > 0)
        snprintf(more, sizeof(more), " (%llu more since the last line)",
                 (unsigned long long)skipped);
    gc_log_write(refusal->device->core->log, GC_LOG_WARN, "device %d: %s refused: %s%s",
                 refusal->device->info.ordinal, GC_TEXT_SIZE(refusal->requested_bytes), text, more);
}

/* For the report: the least limit of the process that had room for each refused request. */
static void note_sufficient(const struct refusal *refusal)
{
    const struct gc_budget *budget = &refusal->device->budget;
    const uint64_t limit = gc_budget_limit(budget);
    uint64_t held, sum;
    if (gc_add_u64(gc_budget_held(budget), limit != UINT64_MAX ? limit - gc_budget_room(budget) : 0,
                   &held) &&
        gc_add_u64(held, refusal->charge_bytes, &sum))
        gc_stats_raise(&refusal->device->stats.sufficient_bytes, sum);
}

void gc_refusal_count(struct gc_device *device, struct gc_quota *quota,
                      const struct gc_entry *entry, uint64_t charge_bytes,
                      const struct gc_charge_failure *failure)
{
    const struct refusal refusal = {.device = device,
                                    .quota = quota,
                                    .requested_bytes = entry->requested_bytes,
                                    .charge_bytes = charge_bytes,
                                    .failure = failure};
    uint64_t skipped;
    note_sufficient(&refusal);
    gc_quota_count_oom(device, quota, entry);
    if (is_due(device, &skipped))
        log_refusal(&refusal, skipped);
}
