#include "core/pause.h"

#include "core/check.h"
#include "core/instance.h"
#include "core/ledger.h"
#include "core/member.h"
#include "core/swap.h"
#include "core/text.h"

#include <stddef.h>
#include <stdio.h>
#include <time.h>

#define POLL_NS 200000
/* What a request lets work under way take to finish. */
#define WORK_MS 5000
/* How often a thread that waits looks whether something is asked, where no helper does. */
#define LISTEN_MS 20

/* ---- all contexts ---- */

/* False ends the walk. */
typedef bool visit_context(struct gc_context *context, void *argument);

/* False if a visit said so. Contexts that end meanwhile are left out or visited. */
static bool visit_all(struct gc_core *core, visit_context *visit, void *argument)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        struct gc_device *device = gc_core_find_device(core, i);
        struct gc_context *context = device == NULL ? NULL : gc_context_first(device);
        for (; context != NULL; context = gc_context_next(context))
            if (!gc_context_is_dropped(context) && !visit(context, argument))
                return false;
    }
    return true;
}

/* ---- waiting with an end ---- */

struct deadline {
    const struct gc_driver *driver;
    uint64_t end_ns;
};

static bool is_over(const struct deadline *deadline)
{
    return deadline->driver->clock_ns(deadline->driver->self) >= deadline->end_ns;
}

/* The driver's code once the fence is reached; not_ready: it was not in time. */
static int await_fence(struct gc_context *context, uint64_t fence, const struct deadline *deadline)
{
    const struct gc_driver *driver = &context->core->driver;
    const struct timespec pause = {0, POLL_NS};
    for (;;) {
        const int code = driver->fence_query(driver->self, context->handle, fence);
        if (code != driver->not_ready || is_over(deadline))
            return code;
        nanosleep(&pause, NULL);
    }
}

/* Whether all work of the context is done. A driver that cannot mark it is asked to wait. */
static bool await_idle(struct gc_context *context, const struct deadline *deadline,
                       struct gc_swap_result *result)
{
    const struct gc_driver *driver = &context->core->driver;
    uint64_t fence = 0;
    int code = driver->fence_record == NULL
                   ? driver->not_supported
                   : driver->fence_record(driver->self, context->handle, &fence);
    if (code == 0) {
        code = await_fence(context, fence, deadline);
        driver->fence_release(driver->self, context->handle, fence);
    } else if (driver->fence_record == NULL || code == driver->not_supported) {
        code = driver->synchronize(driver->self, context->handle);
    }
    result->driver_code = code == driver->not_ready ? 0 : code;
    if (code == 0)
        return true;
    result->refusal = code == driver->not_ready ? GC_SWAP_BUSY : GC_SWAP_DRIVER;
    return false;
}

/* ---- out ---- */

struct pausing {
    struct deadline deadline;
    bool keeps_content;
    struct gc_swap_result *result;
};

static bool check(struct gc_context *context, void *argument)
{
    struct pausing *pausing = argument;
    pausing->result->refusal = gc_swap_check(context);
    return pausing->result->refusal == GC_SWAP_OK;
}

static bool settle(struct gc_context *context, void *argument)
{
    struct pausing *pausing = argument;
    return await_idle(context, &pausing->deadline, pausing->result);
}

static bool move_out(struct gc_context *context, void *argument)
{
    struct pausing *pausing = argument;
    struct gc_swap_result one;
    const bool is_done = gc_core_swap_out(context, pausing->keeps_content, &one);
    pausing->result->refusal = one.refusal;
    pausing->result->driver_code = one.driver_code;
    pausing->result->moved_bytes += one.moved_bytes;
    return is_done;
}

static bool move_in(struct gc_context *context, void *argument)
{
    struct gc_swap_result *result = argument;
    struct gc_swap_result one;
    if (!gc_context_is_swapped(context))
        return true;
    const bool is_done = gc_core_swap_in(context, &one);
    result->refusal = one.refusal;
    result->driver_code = one.driver_code;
    result->moved_bytes += one.moved_bytes;
    return is_done;
}

/* What is held though all that can go is away. */
static uint64_t held_bytes(struct gc_core *core)
{
    uint64_t bytes = 0;
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        const struct gc_device *device = gc_core_find_device(core, i);
        bytes += device == NULL ? 0 : gc_device_reserved_bytes(device);
    }
    return bytes;
}

static bool refuse(struct gc_swap_result *result, enum gc_swap_refusal refusal)
{
    result->refusal = refusal;
    return false;
}

bool gc_core_is_paused(struct gc_core *core)
{
    return gc_turnstile_is_closed(&core->work.turnstile);
}

void gc_core_await_resume(struct gc_core *core)
{
    const uint32_t patience_ms = gc_member_needs_threads(core) ? LISTEN_MS : GC_TURNSTILE_FOREVER;
    while (!gc_turnstile_await_open(&core->work.turnstile, patience_ms))
        (void)gc_member_serve(core);
}

/* Waits until nobody is inside. */
static bool await_empty(struct gc_core *core, const struct deadline *deadline)
{
    const struct timespec pause = {0, POLL_NS};
    while (!gc_turnstile_is_empty(&core->work.turnstile)) {
        if (is_over(deadline))
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

static bool pause_all(struct gc_core *core, bool keeps_content, uint32_t timeout_ms,
                      struct gc_swap_result *result)
{
    const struct gc_driver *driver = &core->driver;
    struct pausing pausing = {
        .deadline = {driver, driver->clock_ns(driver->self) + timeout_ms * UINT64_C(1000000)},
        .keeps_content = keeps_content,
        .result = result};
    GC_ASSERT(gc_lock_held_count() == 0);
    *result = (struct gc_swap_result){.refusal = GC_SWAP_OK};
    if (gc_core_is_paused(core))
        return refuse(result, GC_SWAP_AGAIN);
    if (!visit_all(core, check, &pausing))
        return false;
    gc_turnstile_close(&core->work.turnstile);
    if (!await_empty(core, &pausing.deadline))
        result->refusal = GC_SWAP_BUSY;
    else if (visit_all(core, check, &pausing) && visit_all(core, settle, &pausing))
        (void)visit_all(core, move_out, &pausing);
    if (result->refusal == GC_SWAP_OK) {
        result->stays_bytes = held_bytes(core);
        return true;
    }
    const struct gc_swap_result why = *result;
    if (visit_all(core, move_in, result)) {
        gc_turnstile_open(&core->work.turnstile);
        *result = why;
        result->moved_bytes = 0;
        return false;
    }
    /* Part of it is away and has no room: paused, and to be resumed when there is. */
    result->refusal = GC_SWAP_OK;
    result->stays_bytes = held_bytes(core);
    return true;
}

/* ---- in ---- */

static bool resume_all(struct gc_core *core, struct gc_swap_result *result)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    *result = (struct gc_swap_result){.refusal = GC_SWAP_OK};
    if (!gc_core_is_paused(core))
        return refuse(result, GC_SWAP_AGAIN);
    if (!visit_all(core, move_in, result))
        return false;
    gc_turnstile_open(&core->work.turnstile);
    return true;
}

/* ---- one at a time ---- */

static bool begin_moving(struct gc_core *core, struct gc_swap_result *result)
{
    *result = (struct gc_swap_result){.refusal = GC_SWAP_BUSY};
    return !atomic_exchange_explicit(&core->is_moving, true, memory_order_acquire);
}

static bool end_moving(struct gc_core *core, bool is_done)
{
    gc_core_show_paused(core, gc_core_is_paused(core));
    atomic_store_explicit(&core->is_moving, false, memory_order_release);
    return is_done;
}

bool gc_core_pause(struct gc_core *core, bool keeps_content, uint32_t timeout_ms,
                   struct gc_swap_result *result)
{
    return begin_moving(core, result) &&
           end_moving(core, pause_all(core, keeps_content, timeout_ms, result));
}

bool gc_core_resume(struct gc_core *core, struct gc_swap_result *result)
{
    return begin_moving(core, result) && end_moving(core, resume_all(core, result));
}

/* ---- requests ---- */

static enum gc_ledger_result say_refusal(const struct gc_swap_result *result, char *text)
{
    if (result->driver_code != 0)
        snprintf(text, GC_LEDGER_ANSWER_BYTES, "%s (code %d)",
                 gc_swap_refusal_text(result->refusal), result->driver_code);
    else
        snprintf(text, GC_LEDGER_ANSWER_BYTES, "%s", gc_swap_refusal_text(result->refusal));
    return GC_ANSWER_REFUSED;
}

static enum gc_ledger_result answer_pause(struct gc_core *core, bool drop, char *text)
{
    struct gc_swap_result result;
    char moved[GC_TEXT_SIZE_BYTES];
    char stays[GC_TEXT_SIZE_BYTES];
    if (!gc_core_pause(core, !drop, WORK_MS, &result))
        return say_refusal(&result, text);
    snprintf(text, GC_LEDGER_ANSWER_BYTES, "paused: %s %s, %s stays on the device",
             gc_text_size(result.moved_bytes, moved), drop ? "dropped" : "moved to host memory",
             gc_text_size(result.stays_bytes, stays));
    return GC_ANSWER_DONE;
}

static enum gc_ledger_result answer_resume(struct gc_core *core, char *text)
{
    struct gc_swap_result result;
    char moved[GC_TEXT_SIZE_BYTES];
    if (!gc_core_resume(core, &result))
        return say_refusal(&result, text);
    snprintf(text, GC_LEDGER_ANSWER_BYTES, "resumed: %s back on the device",
             gc_text_size(result.moved_bytes, moved));
    return GC_ANSWER_DONE;
}

static enum gc_ledger_result answer(void *argument, enum gc_ledger_ask ask, const char *tenant,
                                    bool drop, char *text)
{
    struct gc_core *core = argument;
    if (tenant[0] != '\0') {
        snprintf(text, GC_LEDGER_ANSWER_BYTES, "the process has no tenant of that name");
        return GC_ANSWER_REFUSED;
    }
    return ask == GC_ASK_PAUSE ? answer_pause(core, drop, text) : answer_resume(core, text);
}

void gc_pause_join(struct gc_core *core)
{
    gc_core_set_ask_function(core, GC_ASK_PAUSE, answer, core);
    gc_core_set_ask_function(core, GC_ASK_RESUME, answer, core);
}
