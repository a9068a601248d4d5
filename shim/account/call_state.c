/* In what state the program's thread and context are. A call that core serves answers as the plain
 * driver would in that state; the driver itself is asked, by calls that change nothing.
 *
 * Two things are known without a question, so that hits stay cheap. A thread is settled while the
 * driver said that a context is current to it, and no call since then may have changed that. And a
 * context is suspect once any call told of an error that does not go away: magazines and pools of
 * suspect contexts are closed, so every call comes by here. An error of queued work is known as
 * soon as any call reports it; a program that asks for nothing but memory is served until then. */
#include "shim/account/contexts.h"
#include "shim/account/direct.h"
#include "shim/intercept/resolve.h"

/* "Leaves the process in an inconsistent state", "cannot be used anymore": cuda.h of each. */
static bool is_lasting(CUresult result)
{
    switch ((int)result) { /* some are newer than the headers may be */
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN:
        return true;
    default:
        return false;
    }
}

void gc_shim_note_error(CUresult result)
{
    if (!is_lasting(result) || gc_shim_life() != GC_LIFE_READY)
        return;
    gc_core_suspect_contexts(gc_shim.core); /* whose work it was, nobody said */
    if (result == CUDA_ERROR_ILLEGAL_ADDRESS)
        gc_core_note_fault(gc_shim.core);
}

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

/* ---- what makes another context current ---- */

#define SWITCH(symbol, ...)                                                                        \
    do {                                                                                           \
        gc_thread.is_unsettled = 1;                                                                \
        (void)gc_shim_ready();                                                                     \
        return GC_FORWARD(symbol, __VA_ARGS__);                                                    \
    } while (0)

/* A context that becomes current is known from then on, however it was made, so that its default
 * stream is not taken for another context's. */
#define MAKE_CURRENT(symbol)                                                                       \
    do {                                                                                           \
        gc_thread.is_unsettled = 1;                                                                \
        if (!gc_shim_ready())                                                                      \
            return GC_FORWARD(symbol, context);                                                    \
        gc_shim_enter(GC_API_##symbol);                                                            \
        CUresult result = GC_CALL(NULL, symbol, context);                                          \
        if (result == CUDA_SUCCESS && context != NULL &&                                           \
            gc_core_find_context(gc_shim.core, (uintptr_t)context) == NULL)                        \
            (void)gc_shim_current_context();                                                       \
        gc_shim_leave();                                                                           \
        return result;                                                                             \
    } while (0)

GC_EXPORT
CUresult cuCtxSetCurrent(CUcontext context)
{
    MAKE_CURRENT(cuCtxSetCurrent);
}

GC_EXPORT
CUresult cuCtxPushCurrent(CUcontext context)
{
    MAKE_CURRENT(cuCtxPushCurrent);
}

GC_EXPORT
CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    MAKE_CURRENT(cuCtxPushCurrent_v2);
}

GC_EXPORT
CUresult cuCtxPopCurrent(CUcontext *context)
{
    SWITCH(cuCtxPopCurrent, context);
}

GC_EXPORT
CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    SWITCH(cuCtxPopCurrent_v2, context);
}
