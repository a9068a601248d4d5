/* Opens objects for the library itself, and keeps objects loaded, without a hang.
 *
 * dlopen needs the dynamic linker's lock. Another thread may hold it and wait for this one: the
 * constructor of a library that the program opens starts a thread, which makes its first CUDA call,
 * and joins it. So a thread of the library's own opens the object, and the calling thread waits for
 * that a bounded time; it goes on without the object if the lock was not free. A calling thread
 * that holds the lock itself opens the object itself: no other thread could.
 *
 * Keeping an object loaded needs the lock as well. It matters only where the program unloads
 * objects: dlclose (intercept/dlsym.S), which takes that lock anyway.
 *
 * These are the only calls of dlopen and its kin on the way of a program's CUDA call
 * (scripts/check-layers.sh). */
#define _GNU_SOURCE
#include "shim/real/open.h"
#include "shim/shim.h"

#include "core/base/clock.h"
#include "core/io/detached.h"
#include "core/io/elf.h"
#include "core/io/elf_object.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define WAIT_NS UINT64_C(3000000000)
#define WAIT_BLOCKED_NS UINT64_C(20000000) /* after another wait was in vain */
#define KEPT_MAX 32 /* the driver, NVML, runtimes; further ones are not kept */

/* LATE: as UNDER_WAY, and no thread waits again. */
enum state { UNTOUCHED, UNDER_WAY, LATE, DONE };

static atomic_uint late_count; /* tasks that are LATE: another one would wait as long */

/* ---- opening ---- */

static void open_task(struct gc_open_task *task)
{
    const struct gc_libc *libc = gc_elf_libc();
    void *handle = libc == NULL ? NULL : libc->dlopen(task->path, RTLD_LAZY | RTLD_LOCAL);
    const char *error = NULL;

    if (handle != NULL && task->symbol != NULL)
        task->found = libc->dlsym(handle, task->symbol);
    if (libc == NULL)
        error = "the program has no dlopen";
    else if (handle == NULL || (task->symbol != NULL && task->found == NULL))
        error = libc->dlerror(); /* clears it: the program must not see it */
    snprintf(task->error, sizeof(task->error), "%s", error != NULL ? error : "");
}

static void open_unwinder(struct gc_open_task *task)
{
    void *walked[4];

    (void)task;
    (void)gc_elf_backtrace(walked, 4);
}

static void work(struct gc_open_task *task)
{
    if (task->path[0] != '\0')
        open_task(task);
    else
        open_unwinder(task);
    /* Release: pairs with the acquires in wait_for. */
    if (atomic_exchange_explicit(&task->state, DONE, memory_order_release) == LATE)
        atomic_fetch_sub_explicit(&late_count, 1, memory_order_relaxed);
}

static void *run_thread(void *task)
{
    gc_shim_enter(GC_API_COUNT); /* constructors of the object pass through */
    work(task);
    gc_shim_leave();
    return NULL;
}

static bool start_thread(struct gc_open_task *task)
{
    gc_detached_create *create;

    *(void **)&create = gc_elf_find_function("libc", "pthread_create");
    if (create == NULL)
        *(void **)&create = gc_elf_find_function("libpthread", "pthread_create");
    return gc_detached_start(create, run_thread, task);
}

static bool wait_for(struct gc_open_task *task)
{
    const struct timespec pause = {0, 50000};
    const bool is_blocked = atomic_load_explicit(&late_count, memory_order_relaxed) > 0;
    const uint64_t end_ns = gc_clock_ns() + (is_blocked ? WAIT_BLOCKED_NS : WAIT_NS);
    uint32_t state;

    /* Acquire: pairs with the release in work. */
    while ((state = atomic_load_explicit(&task->state, memory_order_acquire)) == UNDER_WAY &&
           gc_clock_ns() < end_ns)
        nanosleep(&pause, NULL);
    if (state == UNDER_WAY &&
        atomic_compare_exchange_strong_explicit(&task->state, &state, LATE, memory_order_acquire,
                                                memory_order_acquire))
        atomic_fetch_add_explicit(&late_count, 1, memory_order_relaxed);
    return state == DONE;
}

/* `path`: "" for the unwinder. */
static bool run(struct gc_open_task *task, const char *path)
{
    uint32_t expected = UNTOUCHED;

    if (atomic_compare_exchange_strong_explicit(&task->state, &expected, UNDER_WAY,
                                                memory_order_relaxed, memory_order_relaxed)) {
        snprintf(task->path, sizeof(task->path), "%s", path);
        if (gc_elf_holds_linker_lock() || !start_thread(task))
            work(task);
    }
    return wait_for(task);
}

bool gc_open_object(struct gc_open_task *task, const char *path)
{
    return run(task, path);
}

bool gc_open_unwinder(void)
{
    static struct gc_open_task task;

    return run(&task, "");
}

bool gc_open_here(const char *path)
{
    const struct gc_libc *libc = gc_elf_libc();
    const bool is_open = libc != NULL && libc->dlopen(path, RTLD_LAZY | RTLD_LOCAL) != NULL;

    if (libc != NULL)
        libc->dlerror(); /* the program must not see our misses */
    return is_open;
}

/* ---- keeping ---- */

static struct {
    _Atomic(uintptr_t) start; /* of the object; 0: free */
    atomic_bool is_pinned;
} kept[KEPT_MAX];

void gc_open_keep(const void *code)
{
    uintptr_t low, high;

    if (!gc_elf_find_range(code, &low, &high))
        return;
    for (size_t i = 0; i < KEPT_MAX; i++) {
        uintptr_t present = 0;

        if (atomic_compare_exchange_strong_explicit(&kept[i].start, &present, low,
                                                    memory_order_relaxed, memory_order_relaxed) ||
            present == low)
            return;
    }
}

void gc_open_pin(void)
{
    const struct gc_libc *libc = gc_elf_libc();
    Dl_info info;

    for (size_t i = 0; i < KEPT_MAX && libc != NULL; i++) {
        const uintptr_t start = atomic_load_explicit(&kept[i].start, memory_order_relaxed);

        if (start == 0)
            return;
        /* Noted once it is pinned: two threads may both pin it. Acquire and release: a thread that
         * finds it noted goes on to the program's dlclose. */
        if (atomic_load_explicit(&kept[i].is_pinned, memory_order_acquire))
            continue;
        if (libc->dladdr((const void *)start, &info) != 0 && info.dli_fname != NULL &&
            libc->dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) != NULL)
            atomic_store_explicit(&kept[i].is_pinned, true, memory_order_release);
        libc->dlerror(); /* the program must not see our misses */
    }
}
