/* The library's own threads. Each is started when a device is in use, so after CUDA, and never in a
 * forked child; it blocks all signals, sleeps until it is woken, and only makes calls that the
 * program's threads might make.
 *
 * One answers other processes, in processes with a group; one those that open blocks by handles.
 * One compares the account with NVML's figure for the process, where a limit is in force: NVML
 * takes milliseconds, and its start may take the dynamic linker's lock, for which no thread of the
 * program may have to wait. */
#define _GNU_SOURCE
#include "shim/account/helper.h"
#include "shim/real/resolve.h"

#include "core/base/lock.h"
#include "core/io/detached.h"
#include "core/io/elf_object.h"

#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define NVML_WAIT_MS 1000

/* True too where no thread of the program's can be created either: nothing to say. */
static bool start(void *(*work)(void *))
{
    gc_detached_create *create = gc_resolve_thread_calls()->create;

    return create == NULL || gc_detached_start(create, work, gc_shim.core);
}

/* ---- answers other processes ---- */

static void *help(void *core)
{
    prctl(PR_SET_NAME, "gpucache", 0, 0, 0);
    gc_shim_enter(GC_API_COUNT); /* calls from inside the driver pass through */
    gc_serve_help(core);
    gc_shim_leave();
    return NULL;
}

void gc_helper_start(void)
{
    static atomic_flag is_started = ATOMIC_FLAG_INIT;

    if (gc_serve_wants_helper(gc_shim.core) && !atomic_flag_test_and_set(&is_started) &&
        !start(help))
        gc_log_write(
            &gc_shim.log, GC_LOG_INFO,
            "could not start the group's helper thread: this process serves requests of others only when it allocates");
}

/* ---- gives blocks to other processes ---- */

static void *share(void *core)
{
    prctl(PR_SET_NAME, "gpucache-ipc", 0, 0, 0);
    gc_shim_enter(GC_API_COUNT);
    gc_share_serve(core);
    gc_shim_leave();
    return NULL;
}

bool gc_helper_share(void)
{
    bool is_first;

    if (gc_share_start(gc_shim.core, &is_first) != GC_OK)
        return false;
    if (!is_first || start(share))
        return true;
    gc_share_stop(gc_shim.core);
    return false;
}

/* ---- compares ---- */

static atomic_uint is_wanted; /* a futex */

/* Taken while the thread is inside NVML, and over a fork: a child whose NVML is locked by a thread
 * that it does not have would hang at its first call. The end of the process keeps it. Not a mutex:
 * glibc's that give up are newer than 2.31. */
static atomic_bool is_taken;
static atomic_bool is_ending;
static __thread bool has_nvml __attribute__((tls_model("initial-exec")));
static __thread bool is_forking __attribute__((tls_model("initial-exec")));

/* False after NVML_WAIT_MS: NVML does not come back. */
static bool take_nvml(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    /* Acquire: pairs with the release in leave_nvml. */
    for (int ms = 0; atomic_exchange_explicit(&is_taken, true, memory_order_acquire); ms++) {
        if (ms == NVML_WAIT_MS)
            return false;
        nanosleep(&pause, NULL);
    }
    has_nvml = true;
    return true;
}

static void leave_nvml(void)
{
    has_nvml = false;
    atomic_store_explicit(&is_taken, false, memory_order_release);
}

/* NVML itself may fork. */
static void before_fork(void)
{
    is_forking =
        !has_nvml && !atomic_load_explicit(&is_ending, memory_order_relaxed) && take_nvml();
}

static void after_fork(void)
{
    if (is_forking)
        leave_nvml();
    is_forking = false;
}

static void after_fork_in_child(void)
{
    is_forking = false;
    leave_nvml(); /* the thread is the parent's */
}

static void *compare(void *core)
{
    prctl(PR_SET_NAME, "gpucache-nvml", 0, 0, 0);
    gc_shim_enter(GC_API_COUNT);
    for (;;) {
        /* Acquire: pairs with the release in gc_helper_compare. */
        if (atomic_exchange_explicit(&is_wanted, 0, memory_order_acquire) == 0) {
            (void)gc_lock_sleep_on(&is_wanted, 0, UINT64_MAX);
            continue;
        }
        if (atomic_load_explicit(&is_ending, memory_order_relaxed) || !take_nvml())
            continue;
        gc_reconcile_compare(core);
        leave_nvml();
    }
    return NULL;
}

/* Before the driver's own handler, which is older: handlers run last in, first out. In a signal
 * handler inside the library NVML may be in the middle of a call of this thread. */
static void finish(void)
{
    if (gc_shim_is_child() || gc_shim_is_forked() || gc_shim_is_interrupted() ||
        gc_elf_is_walking() || gc_thread.depth > 0)
        return;
    atomic_store_explicit(&is_ending, true, memory_order_relaxed);
    if (!take_nvml())
        return;
    gc_shim_enter(GC_API_COUNT);
    gc_reconcile_finish(gc_shim.core);
    gc_shim_leave();
}

void gc_helper_compare(void)
{
    static atomic_flag is_started = ATOMIC_FLAG_INIT;

    atomic_store_explicit(&is_wanted, 1, memory_order_release);
    if (atomic_flag_test_and_set(&is_started)) {
        gc_lock_wake(&is_wanted, false);
        return;
    }
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
    if (start(compare))
        (void)atexit(finish);
    else
        gc_log_write(
            &gc_shim.log, GC_LOG_WARN,
            "could not start a thread: memory that the driver takes for itself is not counted");
}
