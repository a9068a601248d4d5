/* Peers of a context and the sets of contexts that a free waits for. All records of a handle agree:
 * a peer of one is a peer of each. */
#include "core/base/assert.h"
#include "core/device/registry.h"

#include <stddef.h>

/* ---- peers ---- */

/* The index of a peer whose device has another peer in the list. */
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

/* Removes dropped peers, then adds the new one. If the list is full, the new peer replaces one
 * whose device has another peer, so that every device stays listed; waits are for all contexts from
 * then on. */
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

static bool add_peer_locked(struct gc_context *context, struct gc_context *peer)
{
    if (is_listed_locked(context, peer))
        return false;
    list_peer_locked(context, peer);
    /* Earlier fences do not cover the peer, so blocks freed from now on need a later epoch, even if
     * no work was submitted since. An empty pool of a device needs none: earlier work of the peer
     * does not use memory that is still to be allocated. */
    if (!context->is_device || context->pool.content.segments != NULL)
        (void)gc_submit_advance(&context->core->work);
    return true;
}

void gc_peers_list(struct gc_context *context, struct gc_context *peer)
{
    gc_pool_acquire_plain(&context->pool);
    (void)add_peer_locked(context, peer);
    gc_pool_release(&context->pool);
}

bool gc_peers_begin_opening(struct gc_context *context, struct gc_context *peer)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    const bool is_new = add_peer_locked(context, peer) && peer->device != context->device;
    while (!is_new && peer->device != context->device && context->opening_count > 0)
        gc_lock_wait(&pool->lock, &pool->pages.changed);
    context->opening_count += is_new;
    gc_pool_release(pool);
    return is_new;
}

void gc_peers_end_opening(struct gc_context *context)
{
    struct gc_pool *pool = &context->pool;
    gc_pool_acquire_plain(pool);
    context->opening_count--;
    gc_lock_broadcast(&pool->pages.changed);
    gc_pool_release(pool);
}

/* ---- waits ---- */

/* Announces a wait, unless the context captures. Both words are sequentially consistent: either
 * this thread sees the capture, or gc_capture_begin_context sees the wait. */
static bool announce_wait(struct gc_context *context, struct gc_wait_set *set)
{
    atomic_fetch_add_explicit(&context->wait_count, 1, memory_order_seq_cst);
    set->contexts[set->count++] = context;
    return atomic_load_explicit(&context->capture_count, memory_order_seq_cst) == 0;
}

static bool contains(const struct gc_wait_set *set, const struct gc_context *context)
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

bool gc_peers_wait_begin_locked(struct gc_context *context, struct gc_wait_set *set)
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
        if (gc_context_is_dropped(roaming) || contains(set, roaming))
            continue;
        is_crowded = set->count > GC_PEER_MAX;
        may_wait = is_crowded || announce_wait(roaming, set);
    }
    if (may_wait && is_crowded)
        may_wait = announce_everyone(context->core, set);
    if (!may_wait)
        gc_peers_wait_end(set);
    return may_wait;
}

void gc_peers_wait_end(struct gc_wait_set *set)
{
    for (uint32_t i = 0; i < set->count; i++)
        atomic_fetch_sub_explicit(&set->contexts[i]->wait_count, 1, memory_order_seq_cst);
    if (set->everyone != NULL)
        atomic_fetch_sub_explicit(&set->everyone->everyone_count, 1, memory_order_seq_cst);
    set->count = 0;
    set->everyone = NULL;
}
