/* The ground of the shim: the process's state and the thread's, how a wrapper is entered and left,
 * and the state of the start. Nothing here calls the driver.
 *
 * A forked child must not touch its parent's accounts: a page that the kernel wipes on fork
 * distinguishes the two without a system call; without such a page the process ids are compared. */
#define _GNU_SOURCE
#include "shim/shim.h"

#include "core/base/lock.h"
#include "core/device/submit.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const char closed;
static const _Atomic uint32_t no_request;
static const uint32_t plain_alloc = GC_ENTRY_CODE(GC_ROW_cuMemAlloc_v2);
static const uint32_t plain_free = GC_ENTRY_CODE(GC_ROW_cuMemFree_v2);
struct gc_shim gc_shim = {.alloc_code = &plain_alloc,
                          .free_code = &plain_free,
                          .log = {GC_LOG_WARN, STDERR_FILENO},
                          .hot = &closed,
                          .doorbell = {.control = &no_request}};
struct gc_submitter gc_shim_no_submitter;
__thread struct gc_thread gc_thread __attribute__((tls_model("initial-exec"))) = {
    .outer_api = GC_API_COUNT, .is_unconfirmed = 1, .submitter = &gc_shim_no_submitter};

const char *gc_shim_api_names[GC_API_COUNT];

static struct {
    atomic_int state;   /* enum gc_start */
    atomic_int starter; /* pid of the process that is starting or has started */
    /* Driver calls made before core existed to count them. */
    atomic_uint early_calls[GC_API_COUNT];
} life;

/* ---- the library's life ---- */

static void mark_process(void)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return;
#ifdef MADV_WIPEONFORK
    if (madvise(page, bytes, MADV_WIPEONFORK) == 0) {
        *(char *)page = 1;
        gc_shim.wiped_on_fork = page;
        return;
    }
#endif
    munmap(page, bytes);
}

/* Whether this process began the start, or no process has. */
static bool is_starter(void)
{
    const int starter = atomic_load_explicit(&life.starter, memory_order_relaxed);

    return starter == 0 || starter == getpid();
}

bool gc_shim_start_claim(enum gc_start from, enum gc_start to)
{
    int expected = (int)from;

    if (!is_starter() ||
        !atomic_compare_exchange_strong_explicit(&life.state, &expected, (int)to,
                                                 memory_order_relaxed, memory_order_relaxed))
        return false;
    if (from == GC_START_NEW) {
        atomic_store_explicit(&life.starter, getpid(), memory_order_relaxed);
        mark_process();
    }
    return true;
}

void gc_shim_start_reach(enum gc_start state)
{
    /* release: pairs with the acquires in gc_shim_start_wait and gc_shim_is_started */
    atomic_store_explicit(&life.state, (int)state, memory_order_release);
}

bool gc_shim_start_wait(enum gc_start state)
{
    const struct timespec pause = {0, 50000};

    while (atomic_load_explicit(&life.state, memory_order_acquire) < (int)state) {
        if (!is_starter())
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

void gc_shim_close_hot(void)
{
    __atomic_store_n(&gc_shim.hot, &closed, __ATOMIC_RELEASE);
}

bool gc_shim_is_started(void)
{
    return atomic_load_explicit(&life.state, memory_order_acquire) == GC_START_OVER;
}

bool gc_shim_is_forked(void)
{
    return getpid() != atomic_load_explicit(&life.starter, memory_order_relaxed);
}

bool gc_shim_is_interrupted(void)
{
    return gc_lock_held_count() > 0 || gc_trace_is_recording();
}

enum gc_life gc_shim_life(void)
{
    if (!gc_shim_is_started())
        return GC_LIFE_NEW;
    if (gc_shim_is_child())
        return GC_LIFE_CHILD;
    return gc_shim.core != NULL ? GC_LIFE_READY : GC_LIFE_OFF;
}

/* ---- a call ---- */

enum gc_api gc_shim_enter(enum gc_api api)
{
    gc_thread.depth++;
    return gc_thread.outer_api != GC_API_COUNT ? (enum gc_api)gc_thread.outer_api : api;
}

/* The next call has another caller. */
static void clear_caller(void)
{
    if (gc_thread.depth == 0 && gc_thread.outer_api == GC_API_COUNT)
        gc_thread.caller = NULL;
}

void gc_shim_leave(void)
{
    gc_thread.depth--;
    clear_caller();
}

bool gc_shim_enter_runtime(enum gc_api api)
{
    if (gc_thread.outer_api != GC_API_COUNT)
        return false;
    gc_thread.outer_api = (uint16_t)api;
    return true;
}

void gc_shim_leave_runtime(bool outermost)
{
    if (!outermost)
        return;
    gc_thread.outer_api = GC_API_COUNT;
    clear_caller();
}

/* A thread has a number of its own: addresses and ids are reused. */
uint64_t gc_shim_thread_number(void)
{
    static atomic_uint_fast64_t last;

    if (gc_thread.number == 0)
        gc_thread.number = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    return gc_thread.number;
}

void gc_shim_count(struct gc_device *device, enum gc_api api)
{
    if (!gc_shim_is_started())
        atomic_fetch_add_explicit(&life.early_calls[api], 1, memory_order_relaxed);
    else if (gc_shim.core != NULL && !gc_shim_is_child())
        gc_device_count_driver_call(gc_shim.core, device, (uint16_t)api);
}

void gc_shim_count_early(void)
{
    for (unsigned api = 0; api < GC_API_COUNT; api++)
        for (unsigned n = atomic_exchange_explicit(&life.early_calls[api], 0, memory_order_relaxed);
             n > 0; n--)
            gc_device_count_driver_call(gc_shim.core, NULL, (uint16_t)api);
}

CUresult gc_shim_result(enum gc_status status, int driver_code)
{
    switch (status) {
    case GC_OK:
        return CUDA_SUCCESS;
    case GC_OUT_OF_MEMORY:
    case GC_NO_HOST_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case GC_CAPTURING:
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    case GC_DRIVER:
        return (CUresult)driver_code;
    case GC_NOT_OURS:
    case GC_INVALID_POINTER:
    case GC_INVALID_ARGUMENT:
        return CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_UNKNOWN;
    }
}

/* ---- lasting errors ---- */

/* Errors after which, by cuda.h, the process is inconsistent or the context unusable. */
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

void gc_shim_on_error(CUresult result)
{
    if (!is_lasting(result) || gc_shim_life() != GC_LIFE_READY)
        return;
    gc_contexts_set_faulted(gc_shim.core); /* the error names no context */
    if (result == CUDA_ERROR_ILLEGAL_ADDRESS)
        gc_debug_report_fault(gc_shim.core);
}
