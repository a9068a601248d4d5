/* The library's life: a lazy start at the first CUDA call, nothing before; the report at exit.
 *
 * The start has steps of two kinds. Finding the driver (resolve.c), and opening the module that
 * reads models (module.c), need the dynamic linker's lock: every thread does these by itself and no
 * thread waits for another. Reading the options, before the module, and creating core, after it,
 * take no lock of anyone else's: one thread does each, and the others wait for it, for a moment. A
 * call that comes back to us from inside the start passes through.
 *
 * A forked child must not touch its parent's accounts: a page that the kernel wipes on fork tells
 * the two apart without a system call (without such a page getpid does). At exit getpid is compared
 * as well, since a child that shares its parent's memory runs the parent's destructors. The real
 * pointers stay usable in every state; core stays whole after the report, for static destructors
 * that run later. */
#define _GNU_SOURCE
#include "core/base/lock.h"
#include "core/plan/plan.h"
#include "shim/account/outside.h"
#include "shim/account/tenant.h"
#include "shim/intercept/resolve.h"
#include "shim/intercept/unknown.h"
#include "shim/life/deep.h"
#include "shim/life/exit_report.h"
#include "shim/life/module.h"
#include "shim/wrap/submit.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const char closed;
static const _Atomic uint32_t nothing_asked;
struct gc_shim gc_shim = {
    .log = {GC_LOG_WARN, STDERR_FILENO}, .hot = &closed, .watch = {.control = &nothing_asked}};
__thread struct gc_thread gc_thread
    __attribute__((tls_model("initial-exec"))) = {.outer_api = GC_API_COUNT, .is_unsettled = 1};

const char *const gc_api_names[GC_API_COUNT] = {
#define API(symbol, ...) #symbol,
#define RUNTIME(symbol, ...) #symbol,
#include "shim/api.def"
#define OWN(symbol) #symbol,
#include "shim/public/own.def"
};

/* In this order. Between LIFE_READ and LIFE_STARTING each thread opens the module. */
enum life_state { LIFE_NEW, LIFE_READING, LIFE_READ, LIFE_STARTING, LIFE_READY };

static struct {
    atomic_int state;
    struct gc_work *_Atomic work; /* set once core is there */
    atomic_int starter;           /* pid of the process that is starting or has started */
    volatile char *wiped_on_fork; /* 1 here, 0 in a forked child; NULL: compare pids */
    struct gc_exit_report report;
    struct gc_region plan_memory;
    struct gc_run_plan plan;
    atomic_uint
        early_calls[GC_API_COUNT]; /* driver calls made before there was a core to count them */
} life;

static bool is_child(void)
{
    if (life.wiped_on_fork != NULL)
        return *life.wiped_on_fork == 0;
    return getpid() != atomic_load_explicit(&life.starter, memory_order_relaxed);
}

static void mark_process(void)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return;
#ifdef MADV_WIPEONFORK
    if (madvise(page, bytes, MADV_WIPEONFORK) == 0) {
        *(char *)page = 1;
        life.wiped_on_fork = page;
        return;
    }
#endif
    munmap(page, bytes);
}

static void open_trace(void)
{
    if (gc_shim.options->trace[0] != '\0' &&
        gc_trace_open(gc_shim.options->trace, gc_api_names, GC_API_COUNT, &gc_shim.log,
                      &gc_shim.trace) != GC_OK)
        gc_shim.trace = NULL;
}

/* NULL: none is to be followed. */
static const struct gc_run_plan *load_plan(void)
{
    const char *path = gc_shim.options->plan;
    struct gc_run_error error;

    if (path[0] == '\0')
        return NULL;
    gc_region_init(&life.plan_memory, GC_RUN_REGION_BYTES_MAX);
    const enum gc_status status = gc_run_plan_load(&life.plan_memory, path, &life.plan, &error);
    if (status == GC_OK)
        return &life.plan;
    gc_log_write(&gc_shim.log, GC_LOG_WARN, "GPUCACHE_PLAN=%s: %s; no plan is followed", path,
                 error.text[0] != '\0' ? error.text : gc_status_text(status));
    life.report.is_plan_refused = true;
    gc_region_fini(&life.plan_memory);
    return NULL;
}

static void count_early_calls(void)
{
    for (unsigned api = 0; api < GC_API_COUNT; api++)
        for (unsigned n = atomic_exchange_explicit(&life.early_calls[api], 0, memory_order_relaxed);
             n > 0; n--)
            gc_core_count_driver_call(gc_shim.core, NULL, (uint16_t)api);
}

static void leave_in_child(void)
{
    gc_core_leave_child(gc_shim.core);
}

static void join_ledger(void)
{
    gc_core_join(gc_shim.core, life.report.process.program, &gc_shim.watch);
    pthread_atfork(NULL, NULL, leave_in_child);
}

/* Without memory to judge with, a gate that closes is closed: also where there is none for the
 * options, and only the environment can be asked. */
static bool is_gate_closed(void)
{
    const struct gc_options *options = gc_shim.options;
    const char *gate, *model;

    if (options != NULL)
        return options->model[0] != '\0' &&
               (options->gate == GC_GATE_DENY || options->gate == GC_GATE_EXIT);
    gate = secure_getenv("GPUCACHE_GATE");
    model = secure_getenv("GPUCACHE_MODEL");
    return gate != NULL && model != NULL &&
           (strcmp(gate, "deny") == 0 || strcmp(gate, "exit") == 0);
}

/* What core needs beside options and driver, and what the report will say of the start. */
static void gather(struct gc_core_config *config)
{
    const struct gc_driver *driver = config->driver;

    gc_process_describe(&life.report.process);
    life.report.start_unix = (int64_t)time(NULL);
    life.report.start_ns = driver->clock_ns(driver->self);
    open_trace();
    config->trace = gc_shim.trace;
    config->plan = load_plan();
}

/* Core is there: calls may come in. */
static void begin_service(void)
{
    gc_hot_start();
    count_early_calls();
    join_ledger();
    /* Only called by name: what the program submits does not come by. */
    if (gc_resolve_driver(false) && !gc_resolve_is_interposing())
        (void)gc_core_set_conservative(gc_shim.core);
    gc_outside_look();
    /* release: pairs with the acquire in gc_shim_work */
    atomic_store_explicit(&life.work, gc_core_work(gc_shim.core), memory_order_release);
    /* Without a page that is wiped on fork, finding out takes a system call: the long way. */
    if (life.wiped_on_fork != NULL && gc_shim.options->mode == GC_MODE_CACHE)
        __atomic_store_n(&gc_shim.hot, life.wiped_on_fork, __ATOMIC_RELEASE);
}

static void read_options(void)
{
    if (gc_options_load(environ, &gc_shim.log, &gc_shim.options) == GC_OK)
        gc_shim.is_refused = gc_shim.options->refused;
}

/* False: pass through. */
static bool has_work(void)
{
    return gc_shim.options != NULL && !gc_shim.is_refused && gc_shim.options->mode != GC_MODE_OFF;
}

static void create_core(const struct gc_module *module)
{
    struct gc_driver platform;
    struct gc_core_config config = {.driver = &platform,
                                    .log = &gc_shim.log,
                                    .api_names = gc_api_names,
                                    .api_count = GC_API_COUNT};

    if (gc_shim.options == NULL)
        goto fail;
    if (!has_work())
        return;
    if (!gc_gate_open(module))
        goto fail;
    gc_driver_cuda_init(&platform);
    config.options = gc_shim.options;
    gather(&config);
    if (gc_core_create(&config, &gc_shim.core) != GC_OK)
        goto fail;
    if (!gc_tenants_start())
        goto fail_tenants;
    begin_service();
    return;

fail_tenants:
    gc_core_destroy(gc_shim.core);
    gc_shim.core = NULL;
    gc_shim.is_refused = true;
    return;
fail:
    gc_shim.is_refused = is_gate_closed();
    gc_log_write(&gc_shim.log, GC_LOG_ERROR,
                 "no host memory to start with: memory is not cached or limited");
}

/* Waits until another thread has brought the start so far; false in a child that was forked
 * meanwhile. */
static bool await_state(enum life_state state)
{
    const struct timespec pause = {0, 50000};

    /* acquire: pairs with the releases in run_start and start */
    while (atomic_load_explicit(&life.state, memory_order_acquire) < (int)state) {
        int starter = atomic_load_explicit(&life.starter, memory_order_relaxed);

        if (starter != 0 && starter != getpid())
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

static bool claim(enum life_state from, enum life_state to)
{
    int expected = (int)from;

    return atomic_compare_exchange_strong_explicit(&life.state, &expected, (int)to,
                                                   memory_order_relaxed, memory_order_relaxed);
}

/* `argument`: bool, whether it was this thread that created core. */
static void run_start(void *argument)
{
    bool *is_creator = argument;
    struct gc_module module = {0};

    if (claim(LIFE_NEW, LIFE_READING)) {
        atomic_store_explicit(&life.starter, getpid(), memory_order_relaxed);
        mark_process();
        read_options();
        atomic_store_explicit(&life.state, LIFE_READ, memory_order_release);
    }
    if (!await_state(LIFE_READ))
        return;
    if (has_work() && gc_shim.options->model[0] != '\0')
        gc_module_open(&module);
    *is_creator = atomic_load_explicit(&life.starter, memory_order_relaxed) == getpid() &&
                  claim(LIFE_READ, LIFE_STARTING);
    if (*is_creator)
        create_core(&module);
}

/* True once the start is done, by this thread or another one. */
static bool start(void)
{
    bool is_creator = false;

    gc_thread.is_starting = true;
    gc_deep_run(run_start, &is_creator);
    gc_thread.is_starting = false;
    if (is_creator) {
        /* release: pairs with the acquire in gc_shim_ready */
        atomic_store_explicit(&life.state, LIFE_READY, memory_order_release);
        atomic_thread_fence(memory_order_seq_cst); /* the partner is in gc_unknown_see */
        gc_unknown_apply();
    }
    return await_state(LIFE_READY);
}

bool gc_shim_is_started(void)
{
    return atomic_load_explicit(&life.state, memory_order_acquire) == LIFE_READY;
}

bool gc_shim_ready(void)
{
    if (gc_thread.depth > 0 || gc_thread.is_starting)
        return false;
    gc_resolve_driver(true);
    /* acquire: pairs with the release in start */
    if (atomic_load_explicit(&life.state, memory_order_acquire) != LIFE_READY && !start())
        return false;
    if (gc_shim.core == NULL)
        return false;
    if (is_child()) {
        gc_core_leave_child(gc_shim.core); /* made without fork(): no handler ran */
        return false;
    }
    return true;
}

enum gc_life gc_shim_life(void)
{
    /* acquire: pairs with the release in start */
    if (atomic_load_explicit(&life.state, memory_order_acquire) != LIFE_READY)
        return GC_LIFE_NEW;
    if (is_child())
        return GC_LIFE_CHILD;
    return gc_shim.core != NULL ? GC_LIFE_READY : GC_LIFE_OFF;
}

struct gc_work *gc_shim_work(void)
{
    /* acquire: pairs with the release in create_core */
    struct gc_work *work = atomic_load_explicit(&life.work, memory_order_acquire);

    if (__builtin_expect(work == NULL, 0)) {
        if (atomic_load_explicit(&life.state, memory_order_acquire) == LIFE_READY ||
            !gc_shim_ready())
            return NULL;
        work = atomic_load_explicit(&life.work, memory_order_acquire);
    }
    return is_child() ? NULL : work;
}

enum gc_api gc_shim_enter(enum gc_api api)
{
    gc_thread.depth++;
    return gc_thread.outer_api != GC_API_COUNT ? (enum gc_api)gc_thread.outer_api : api;
}

/* Who calls next is another one. */
static void forget_caller(void)
{
    if (gc_thread.depth == 0 && gc_thread.outer_api == GC_API_COUNT)
        gc_thread.caller = NULL;
}

void gc_shim_leave(void)
{
    gc_thread.depth--;
    forget_caller();
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
    forget_caller();
}

void gc_shim_count(struct gc_device *device, enum gc_api api)
{
    if (atomic_load_explicit(&life.state, memory_order_acquire) != LIFE_READY)
        atomic_fetch_add_explicit(&life.early_calls[api], 1, memory_order_relaxed);
    else if (gc_shim.core != NULL && !is_child())
        gc_core_count_driver_call(gc_shim.core, device, (uint16_t)api);
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

/* A signal handler called exit while its thread held a lock: nobody gives that back. */
static bool is_interrupted(void)
{
    if (gc_lock_held_count() == 0 && !gc_trace_is_recording())
        return false;
    gc_shim_enter(GC_API_COUNT); /* destructors that run later pass through */
    gc_log_write(&gc_shim.log, GC_LOG_WARN,
                 "exit was called by a signal handler in the middle of an allocation: no report");
    return true;
}

__attribute__((destructor)) static void finish(void)
{
    if (atomic_load_explicit(&life.state, memory_order_acquire) != LIFE_READY ||
        gc_shim.core == NULL || is_child() ||
        getpid() != atomic_load_explicit(&life.starter, memory_order_relaxed) || is_interrupted())
        return;
    gc_core_end_help(gc_shim.core);
    gc_trace_flush(gc_shim.trace);
    if (gc_core_was_used(gc_shim.core))
        gc_deep_run(gc_exit_report_write, &life.report);
    /* The driver goes too: each call asks from now on whether it is there. */
    __atomic_store_n(&gc_shim.hot, &closed, __ATOMIC_RELEASE);
}
