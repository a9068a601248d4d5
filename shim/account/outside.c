/* Finds the libraries that reach device memory outside all streams. Some uses show by a call: a
 * context or an allocation with SYNC_MEMOPS, a token, an exported range. Other libraries register
 * addresses with the kernel and make no CUDA call: these are known by name (real/loads.c), checked
 * when the library starts and whenever a thread has loaded objects.
 *
 * dlopen (shim/intercept/dlsym.S) calls this file before the load, and nothing calls back after it:
 * until the thread's next call, or its end, no block is reused in the order of the single stream.
 *
 * Before the load dlopen waits for blocks already reused so: for the work before their frees, as
 * plain frees would have waited, and never for the host. */
#define _GNU_SOURCE
#include "shim/account/outside.h"
#include "shim/real/bypass.h"
#include "shim/real/loads.h"
#include "shim/real/resolve.h"
#include "shim/real/thread_end.h"

#include "core/device/submit.h"

/* The thread's load holds the order of the single stream up. */
static __thread bool has_begun __attribute__((tls_model("initial-exec")));

CUresult gc_outside_expect(void)
{
    int driver_code = 0;

    return gc_shim_result(gc_export_leave_single_stream(gc_shim.core, &driver_code), driver_code);
}

static bool is_multi_stream(void)
{
    return atomic_load_explicit(&gc_core_submissions(gc_shim.core)->multi_stream,
                                memory_order_relaxed);
}

void gc_outside_scan(void)
{
    gc_loads_scan();
    if (gc_shim.core == NULL || !gc_loads_has(GC_LOADS_OUTSIDE))
        return;
    if (gc_loads_has(GC_LOADS_REGISTRAR))
        gc_export_expect_registration(gc_shim.core);
    if (!is_multi_stream())
        (void)gc_outside_expect(); /* after a failure the next work retries */
}

void gc_outside_end_load(void)
{
    gc_thread.is_loading = false; /* first: the driver may look names up */
    gc_bypass_check();
    if (gc_shim_life() != GC_LIFE_READY)
        return; /* a forked child, or before the start */
    gc_shim_enter(GC_API_COUNT);
    gc_outside_scan();
    gc_shim_leave();
    if (has_begun)
        gc_submit_end_load(gc_core_submissions(gc_shim.core));
    has_begun = false;
}

/* Ignores loads by the driver: those inside a wrapper, and those by the driver's code in calls that
 * are not wrapped, where the driver may hold its locks. */
void gc_outside_begin_load(const char *path, const void *caller)
{
    if (path == NULL || gc_thread.depth > 0 || gc_resolve_is_driver_code(caller))
        return;
    gc_thread.is_loading = true;
    if (gc_shim_life() != GC_LIFE_READY || is_multi_stream())
        return;
    gc_shim_enter(GC_API_COUNT);
    (void)gc_thread_watch_end();
    if (!has_begun) {
        has_begun = true;
        gc_submit_begin_load(gc_core_submissions(gc_shim.core));
    }
    (void)gc_submit_wait_reused(gc_shim.core);
    gc_shim_leave();
}
