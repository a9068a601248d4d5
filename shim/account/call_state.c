/* In what state the program's thread and context are. A call that core serves answers as the plain
 * driver would in that state; the driver itself is asked, by calls that change nothing.
 *
 * Two things are known without a question, so that hits stay cheap. A thread is settled while the
 * driver said that a context is current to it, and no call since then may have changed that. And a
 * context is suspect once any call told of an error that does not go away: magazines and pools of
 * suspect contexts are closed, so every call comes by here. An error of queued work is known as
 * soon as any call reports it; a program that asks for nothing but memory is served until then. */
#include "shim/account/call_state.h"
#include "shim/account/device.h"
#include "shim/driver/capture_guard.h"
#include "shim/real/resolve.h"

/* What needs a working context and takes or gives no memory. */
static CUresult ask_driver(void)
{
    size_t free_bytes, total_bytes;
    struct gc_capture_guard guard;

    gc_capture_relax(&guard);
    CUresult result = GC_USE(cuMemGetInfo_v2, &free_bytes, &total_bytes);
    gc_capture_restore(&guard);
    return result;
}

CUresult gc_shim_check_state(bool is_unsafe, struct gc_context **current)
{
    CUresult result = CUDA_SUCCESS;

    *current = gc_shim_current_context();
    gc_thread.is_unsettled = *current == NULL;
    if (*current == NULL || gc_context_is_suspect(*current))
        result = ask_driver();
    if (result == CUDA_SUCCESS && is_unsafe)
        result = gc_capture_check();
    return result;
}
