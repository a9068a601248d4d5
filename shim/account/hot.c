/* The library's state of one thread: its cache, made at the first allocation or free that needs
 * one, its tenant, and captures in its own stream. All are released when the thread ends
 * (real/thread_end.h). */
#include "shim/account/hot.h"
#include "shim/account/outside.h"
#include "shim/account/tenant.h"
#include "shim/driver/capture_guard.h"
#include "shim/driver/stream_list.h"
#include "shim/real/thread_end.h"

#include "core/device/submit.h"

static void drop_submitter(void)
{
    struct gc_submitter *line = gc_thread.submitter;

    gc_thread.has_sought_submitter = true; /* destructors that run later: without a line */
    gc_thread.submitter = &gc_shim_no_submitter;
    if (line != &gc_shim_no_submitter)
        gc_submitter_destroy(line);
}

/* Destructors of other keys may still run and use CUDA: without a cache then. */
static void end_thread(void *unused)
{
    struct gc_tcache *tcache = gc_thread.tcache;

    (void)unused;
    gc_thread.ends_watched = false; /* a destructor may set a tenant again */
    gc_outside_check_thread();
    gc_tenants_end_thread();
    gc_capture_end_thread();
    gc_stream_list_end_thread();
    gc_thread.is_ending = true;
    gc_thread.tcache = NULL;
    drop_submitter();
    if (tcache != NULL && *gc_shim.hot != 0) /* 0 in a forked child: the parent's accounts */
        gc_tcache_destroy(gc_shim.core, tcache);
}

void gc_hot_start(void)
{
    gc_thread_end_start(end_thread);
}

void gc_hot_prepare(void)
{
    struct gc_tcache *tcache;

    if (gc_thread.tcache != NULL || gc_thread.is_ending || *gc_shim.hot == 0)
        return;
    tcache = gc_tcache_create(gc_shim.core);
    if (tcache == NULL)
        return;
    if (!gc_thread_watch_end()) {
        gc_tcache_destroy(gc_shim.core, tcache);
        gc_thread.is_ending = true;
        return;
    }
    gc_thread.tcache = tcache;
}

void gc_hot_prepare_submitter(void)
{
    struct gc_submitter *line = NULL;

    /* Before the search: a signal handler that submits during it does without a line. */
    gc_thread.has_sought_submitter = true;
    if (!gc_thread.is_ending && gc_thread_watch_end())
        line = gc_submitter_create(gc_shim.core);
    if (line != NULL)
        gc_thread.submitter = line;
}

/* Inside a wrapper, since the pool's lock is taken: calls of a signal handler pass through. */
uint64_t gc_hot_alloc_from_pool(struct gc_context *context, size_t bytes, enum gc_api api)
{
    (void)gc_shim_enter(api);
    const uint64_t address =
        gc_tcache_alloc_from_pool(gc_thread.tcache, context, bytes, (uint16_t)api);
    gc_shim_leave();
    return address;
}

bool gc_hot_free_to_pool(uint64_t address)
{
    (void)gc_shim_enter(GC_API_cuMemFree_v2);
    const bool is_freed = gc_tcache_free_to_pool(gc_shim.core, gc_thread.tcache, address);
    gc_shim_leave();
    return is_freed;
}
