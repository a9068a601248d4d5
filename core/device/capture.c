/* Captures, peers and waits of a context: who may use its memory, and when nothing may be asked of
 * the driver. All records of a handle are of one mind: what is said of one holds for each. A
 * capture may spread to streams of any context, so while one is under way all contexts capture. */
#include "core/base/assert.h"
#include "core/device/registry.h"

#include <stddef.h>
#include <time.h>

/* How long a capture waits for a synchronisation under way: 2 s in all. */
#define CAPTURE_PAUSE_NS 50000
#define CAPTURE_PAUSES_MAX 40000

/* ---- captures ---- */

/* Whether a wait of any context's is under way. */
static bool is_waited_for(struct gc_core *core)
{
    bool is_waited = atomic_load_explicit(&core->everyone_count, memory_order_seq_cst) != 0;
    gc_lock_acquire(&core->registry);
    for (const struct gc_context *record = core->all_contexts; record != NULL && !is_waited;
         record = record->next_of_all)
        is_waited = atomic_load_explicit(&record->wait_count, memory_order_seq_cst) != 0;
    gc_lock_release(&core->registry);
    return is_waited;
}

/* Inside the capture no fence can be recorded for what is pending already. */
static void record_pending(struct gc_core *core)
{
    for (int i = 0; i < GC_DEVICE_MAX; i++) {
        const struct gc_device *device = gc_core_find_device(core, i);
        struct gc_context *context = device == NULL ? NULL : gc_context_first(device);
        for (; context != NULL; context = gc_context_next(context))
            gc_fence_mark_pending(context);
    }
}

void gc_context_capture_begin(struct gc_context *context)
{
    struct timespec pause = {0, CAPTURE_PAUSE_NS};
    struct gc_core *core = context->core;
    int ignored;
    (void)gc_submit_leave_single_stream(core, &ignored); /* inside the capture it could not wait */
    /* Where calls go unseen the capture may have begun already. */
    if (!atomic_load_explicit(&core->work.is_conservative, memory_order_relaxed))
        record_pending(core);
    atomic_store_explicit(&core->has_captured, true, memory_order_relaxed);
    gc_lock_acquire(&core->registry); /* a record that is made meanwhile has the same count */
    for (struct gc_context *record = core->all_contexts; record != NULL;
         record = record->next_of_all)
        atomic_fetch_add_explicit(&record->capture_count, 1, memory_order_seq_cst);
    atomic_fetch_add_explicit(&core->capture_count, 1, memory_order_seq_cst);
    gc_lock_release(&core->registry);
    /* A synchronisation of ours that ended inside the capture would invalidate it. No wait begins
     * any more; those under way are the device's to end, so not for ever. Looks end at once. */
    for (unsigned i = 0; i < CAPTURE_PAUSES_MAX; i++) {
        if (!is_waited_for(core))
            return;
        nanosleep(&pause, NULL);
    }
}

void gc_context_capture_end(struct gc_context *context)
{
    struct gc_core *core = context->core;
    gc_lock_acquire(&core->registry);
    if (atomic_load_explicit(&core->capture_count, memory_order_relaxed) > 0) {
        for (struct gc_context *record = core->all_contexts; record != NULL;
             record = record->next_of_all)
            atomic_fetch_sub_explicit(&record->capture_count, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&core->capture_count, 1, memory_order_relaxed);
    }
    gc_lock_release(&core->registry);
}

bool gc_context_is_capturing(const struct gc_context *context)
{
    if (context->is_device) /* any of them may use its memory */
        return atomic_load_explicit(&context->core->capture_count, memory_order_relaxed) > 0;
    return atomic_load_explicit(&context->capture_count, memory_order_relaxed) > 0;
}

/* ---- peers ---- */

/* A peer on whose device there is another one. */
static uint32_t find_twin_locked(const struct gc_context *context)
{
    for (uint32_t i = 1; i < context->peer_count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (context->peers[k]->device == context->peers[i]->device)
                return i;
        }
    }
    return 0;
}

/* Those that are gone make room. One too many takes the place of another one of its device, so that
 * all devices that use the memory stay listed, and all contexts are waited for from now on. */
static void list_peer_locked(struct gc_context *context, struct gc_context *peer)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < context->peer_count; i++) {
        if (!gc_context_is_dropped(context->peers[i]))
            context->peers[kept++] = context->peers[i];
    }
    context->peer_count = kept;
    if (kept < GC_PEER_MAX) {
        context->peers[context->peer_count++] = peer;
        return;
    }
    context->is_crowded = true;
    context->peers[find_twin_locked(context)] = peer;
}

static bool is_listed_locked(const struct gc_context *context, const struct gc_context *peer)
{
    bool is_listed = false;
    for (uint32_t i = 0; i < context->peer_count; i++) {
        const struct gc_context *known = context->peers[i];
        is_listed |= !gc_context_is_dropped(known) &&
                     (known == peer || (context->is_crowded && known->device == peer->device));
    }
    return is_listed;
}

static bool list_new_peer_locked(struct gc_context *context, struct gc_context *peer)
{
    if (is_listed_locked(context, peer))
        return false;
    list_peer_locked(context, peer);
    /* Fences that do not cover the peer must not answer for what is freed from now on, though
     * nothing was submitted since. What is still to be taken its work of before does not use. */
    if (!context->is_device || context->pool.content.segments != NULL)
        gc_submit_end(&context->core->work);
    return true;
}

void gc_context_list_peer(struct gc_context *context, struct gc_context *peer)
{
    gc_pool_acquire_plain(&context->pool);
    (void)list_new_peer_locked(context, peer);
    gc_pool_release(&context->pool);
}

bool gc_context_begin_opening(struct gc_context *context, struct gc_context *peer)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    const bool is_new = list_new_peer_locked(context, peer) && peer->device != context->device;
    while (!is_new && peer->device != context->device && context->opening_count > 0)
        gc_lock_wait(&pool->lock, &pool->pages.changed);
    context->opening_count += is_new;
    gc_pool_release(pool);
    return is_new;
}

void gc_context_end_opening(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    context->opening_count--;
    pthread_cond_broadcast(&pool->pages.changed);
    gc_pool_release(pool);
}

/* ---- waits ---- */

/* Announces a wait, unless the context captures. The order of the two words matters: either this
 * sees the capture, or gc_context_capture_begin sees the wait. */
static bool announce_wait(struct gc_context *context, struct gc_wait_set *set)
{
    atomic_fetch_add_explicit(&context->wait_count, 1, memory_order_seq_cst);
    set->contexts[set->count++] = context;
    return atomic_load_explicit(&context->capture_count, memory_order_seq_cst) == 0;
}

static bool is_in(const struct gc_wait_set *set, const struct gc_context *context)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (set->contexts[i]->head == context->head)
            return true;
    return false;
}

static bool announce_everyone(struct gc_core *core, struct gc_wait_set *set)
{
    atomic_fetch_add_explicit(&core->everyone_count, 1, memory_order_seq_cst);
    set->everyone = core;
    return atomic_load_explicit(&core->capture_count, memory_order_seq_cst) == 0;
}

bool gc_context_wait_begin_locked(struct gc_context *context, struct gc_wait_set *set)
{
    set->count = 0;
    set->everyone = NULL;
    bool may_wait = context->is_device || announce_wait(context, set);
    for (uint32_t i = 0; may_wait && i < context->peer_count; i++) {
        if (!gc_context_is_dropped(context->peers[i]))
            may_wait = announce_wait(context->peers[i], set);
    }
    bool is_crowded = context->is_crowded;
    const struct gc_core *core = context->core;
    for (struct gc_context *roaming = gc_context_first_roaming(core);
         may_wait && !is_crowded && roaming != NULL; roaming = gc_context_next_roaming(roaming)) {
        if (gc_context_is_dropped(roaming) || is_in(set, roaming))
            continue;
        is_crowded = set->count > GC_PEER_MAX;
        may_wait = is_crowded || announce_wait(roaming, set);
    }
    if (may_wait && is_crowded)
        may_wait = announce_everyone(context->core, set);
    if (!may_wait)
        gc_context_wait_end(set);
    return may_wait;
}

void gc_context_wait_end(struct gc_wait_set *set)
{
    for (uint32_t i = 0; i < set->count; i++)
        atomic_fetch_sub_explicit(&set->contexts[i]->wait_count, 1, memory_order_seq_cst);
    if (set->everyone != NULL)
        atomic_fetch_sub_explicit(&set->everyone->everyone_count, 1, memory_order_seq_cst);
    set->count = 0;
    set->everyone = NULL;
}

void gc_core_relaxed_begin(struct gc_core *core)
{
    atomic_fetch_add_explicit(&core->everyone_count, 1, memory_order_seq_cst);
}

void gc_core_relaxed_end(struct gc_core *core)
{
    atomic_fetch_sub_explicit(&core->everyone_count, 1, memory_order_seq_cst);
}

uint64_t gc_context_epoch(struct gc_context *context)
{
    /* Acquire: what is counted was submitted before the program's wait begins. */
    return atomic_load_explicit(&context->core->work.submitted, memory_order_acquire);
}

void gc_context_raise_completed(struct gc_context *context, uint64_t epoch)
{
    uint_fast64_t completed = atomic_load_explicit(&context->completed, memory_order_relaxed);
    while (completed < epoch &&
           !atomic_compare_exchange_weak_explicit(&context->completed, &completed, epoch,
                                                  memory_order_release, memory_order_relaxed))
        ;
}
