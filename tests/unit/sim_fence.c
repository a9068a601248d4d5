/* Fences of the simulated platform: a fence is the number of the last work queued in its context.
 * Work is done when it is waited for or completed by the test; with `is_prompt` asking completes
 * it.
 */
#include "tests/unit/sim_driver.h"

#include <stdlib.h>

static struct sim_fence *find_fence(struct sim_driver *sim, uint64_t handle)
{
    for (uint64_t i = 0; i < sim->fence_count; i++) {
        if (sim->fences[i].handle == handle)
            return &sim->fences[i];
    }
    return NULL;
}

static struct sim_fence *fence_of(struct sim_driver *sim, uint64_t context, uint64_t handle)
{
    struct sim_fence *fence = find_fence(sim, handle);
    if (fence == NULL || fence->context != context) {
        sim_driver_violate(sim, "a fence that is none", handle);
        return NULL;
    }
    return fence;
}

static void check_capture(struct sim_driver *sim, uint64_t context, const char *what)
{
    if (context < SIM_CONTEXTS && sim->is_capturing[context])
        sim_driver_violate(sim, what, context);
}

static int fence_record(void *self, uint64_t context, uint64_t *handle)
{
    struct sim_driver *sim = self;
    const int code = sim_driver_begin(sim, SIM_FENCE_RECORD, context);
    if (code != 0)
        return sim_driver_end(sim, code);
    check_capture(sim, context, "a fence recorded in a capture");
    if (sim->has_no_fences)
        return sim_driver_end(sim, SIM_NOT_SUPPORTED);
    if (sim->has_no_room_for_fences)
        return sim_driver_end(sim, SIM_OUT_OF_MEMORY);
    if (sim->fence_count == sim->fence_room) {
        sim->fence_room = sim->fence_room == 0 ? 16 : 2 * sim->fence_room;
        sim->fences = realloc(sim->fences, sim->fence_room * sizeof(*sim->fences));
    }
    *handle = ++sim->next_fence;
    sim->fences[sim->fence_count++] =
        (struct sim_fence){.handle = *handle, .context = context, .last_work = sim->next_work};
    return sim_driver_end(sim, 0);
}

static bool is_done(const struct sim_driver *sim, const struct sim_fence *fence)
{
    for (uint64_t i = 0; i < sim->use_count; i++) {
        if (sim->uses[i].context == fence->context && sim->uses[i].number <= fence->last_work)
            return false;
    }
    return true;
}

static void finish(struct sim_driver *sim, const struct sim_fence *fence)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < sim->use_count; i++) {
        if (sim->uses[i].context != fence->context || sim->uses[i].number > fence->last_work)
            sim->uses[kept++] = sim->uses[i];
    }
    sim->use_count = kept;
}

static int fence_query(void *self, uint64_t context, uint64_t handle)
{
    struct sim_driver *sim = self;
    const int code = sim_driver_begin(sim, SIM_FENCE_QUERY, context);
    if (code != 0)
        return sim_driver_end(sim, code);
    const struct sim_fence *fence = fence_of(sim, context, handle);
    if (fence == NULL)
        return sim_driver_end(sim, SIM_BROKEN);
    if (sim->is_prompt)
        finish(sim, fence);
    return sim_driver_end(sim, is_done(sim, fence) ? 0 : SIM_NOT_READY);
}

static int fence_wait(void *self, uint64_t context, uint64_t handle, uint64_t limit_ns)
{
    struct sim_driver *sim = self;
    const int code = sim_driver_begin(sim, SIM_FENCE_WAIT, context);
    if (code != 0)
        return sim_driver_end(sim, code);
    const struct sim_fence *fence = fence_of(sim, context, handle);
    if (fence == NULL)
        return sim_driver_end(sim, SIM_BROKEN);
    if (is_done(sim, fence))
        return sim_driver_end(sim, 0);
    if (limit_ns != GC_FOREVER && sim->is_endless)
        return sim_driver_end(sim, SIM_NOT_READY);
    const bool is_over = sim->wait_ns > limit_ns;
    atomic_fetch_add(&sim->clock_ahead_ns, is_over ? limit_ns : sim->wait_ns);
    if (is_over)
        return sim_driver_end(sim, SIM_NOT_READY);
    finish(sim, fence);
    return sim_driver_end(sim, 0);
}

static void fence_release(void *self, uint64_t context, uint64_t handle)
{
    struct sim_driver *sim = self;
    pthread_mutex_lock(&sim->lock);
    struct sim_fence *fence = fence_of(sim, context, handle);
    if (fence != NULL)
        *fence = sim->fences[--sim->fence_count];
    pthread_mutex_unlock(&sim->lock);
}

/* A fence of all work of the context: in tests of the one stream it has no other. */
static int stream_record(void *self, uint64_t context, uint64_t stream, uint64_t *handle)
{
    uint64_t fresh = 0;
    (void)stream;
    const int code = fence_record(self, context, &fresh);
    if (code == 0 && *handle != 0)
        fence_release(self, context, *handle);
    if (code == 0)
        *handle = fresh;
    return code;
}

static int stream_wait(void *self, uint64_t stream, uint64_t handle)
{
    struct sim_driver *sim = self;
    const int code = sim_driver_begin(sim, SIM_STREAM_FOLLOW, 0);
    if (code == 0 && find_fence(sim, handle) == NULL)
        sim_driver_violate(sim, "a mark that is none", handle);
    sim->last_follower = stream;
    return sim_driver_end(sim, code);
}

void sim_fence_drop_context(struct sim_driver *sim, uint64_t context)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < sim->fence_count; i++) {
        if (sim->fences[i].context != context)
            sim->fences[kept++] = sim->fences[i];
    }
    sim->fence_count = kept;
}

void sim_fence_init(struct sim_driver *sim)
{
    sim->table.not_ready = SIM_NOT_READY;
    sim->table.not_supported = SIM_NOT_SUPPORTED;
    sim->table.fence_record = fence_record;
    sim->table.fence_query = fence_query;
    sim->table.fence_wait = fence_wait;
    sim->table.fence_release = fence_release;
    sim->table.stream_record = stream_record;
    sim->table.stream_wait = stream_wait;
}

void sim_fence_fini(struct sim_driver *sim)
{
    free(sim->fences);
}
