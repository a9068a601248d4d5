/* Primary contexts, and the green contexts, which are parts of them: the turn to change a primary
 * context, its holders and its handles. */
#include "shim/account/primary.h"
#include "shim/handles.h"
#include "shim/real/resolve.h"

#include <pthread.h>

#define DEVICES_MAX 64

/* ---- turns ---- */

static struct {
    pthread_mutex_t lock; /* guards the rest; nothing is called under it */
    pthread_cond_t changed;
    bool is_taken[DEVICES_MAX];
    int64_t hold_count[DEVICES_MAX]; /* guarded by the turn */
} turns = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static bool has_turns(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < DEVICES_MAX;
}

/* A thread has the turn of one primary context at a time. */
void gc_primary_lock(CUdevice ordinal)
{
    if (!has_turns(ordinal) || gc_thread.primary_turns++ > 0)
        return;
    pthread_mutex_lock(&turns.lock);
    while (turns.is_taken[ordinal])
        pthread_cond_wait(&turns.changed, &turns.lock);
    turns.is_taken[ordinal] = true;
    pthread_mutex_unlock(&turns.lock);
}

void gc_primary_unlock(CUdevice ordinal)
{
    if (!has_turns(ordinal) || --gc_thread.primary_turns > 0)
        return;
    pthread_mutex_lock(&turns.lock);
    turns.is_taken[ordinal] = false;
    pthread_cond_broadcast(&turns.changed);
    pthread_mutex_unlock(&turns.lock);
}

int64_t gc_primary_count_holds(CUdevice ordinal, int change)
{
    return has_turns(ordinal) ? turns.hold_count[ordinal] += change : 0;
}

/* ---- the table of primary contexts ---- */

uint64_t gc_primary_key(CUdevice ordinal)
{
    return (uint64_t)(unsigned)ordinal + 1;
}

bool gc_primary_is_active(CUdevice ordinal)
{
    unsigned flags;
    int is_active = 0;

    return GC_USE(cuDevicePrimaryCtxGetState, ordinal, &flags, &is_active) == CUDA_SUCCESS &&
           is_active;
}

/* The primary context is retained while it has green ones, so its handle can be queried. */
static void learn_primary(CUdevice ordinal)
{
    struct gc_handle known;
    CUcontext primary;

    if (gc_handles_get(GC_HANDLE_PRIMARY, gc_primary_key(ordinal), &known))
        return;
    gc_primary_lock(ordinal);
    if (GC_CALL(NULL, cuDevicePrimaryCtxRetain, &primary, ordinal) == CUDA_SUCCESS) {
        (void)gc_handles_set(GC_HANDLE_PRIMARY, gc_primary_key(ordinal), (uintptr_t)primary, 0);
        (void)GC_CALL(NULL, cuDevicePrimaryCtxRelease_v2, ordinal);
    }
    gc_primary_unlock(ordinal);
}

/* ---- green contexts ---- */

static atomic_bool has_green; /* never cleared */

void gc_primary_add_green(CUcontext context, CUdevice ordinal)
{
    atomic_store_explicit(&has_green, true, memory_order_relaxed);
    learn_primary(ordinal);
    (void)gc_handles_set(GC_HANDLE_GREEN, (uintptr_t)context, gc_primary_key(ordinal), 0);
}

bool gc_primary_is_green(void)
{
    struct gc_handle known;
    CUcontext context;

    return atomic_load_explicit(&has_green, memory_order_relaxed) &&
           GC_USE(cuCtxGetCurrent, &context) == CUDA_SUCCESS &&
           gc_handles_get(GC_HANDLE_GREEN, (uintptr_t)context, &known);
}
