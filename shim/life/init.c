/* The library's life: a lazy start at the first CUDA call, nothing before; the report at exit.
 *
 * No step waits for the dynamic linker's lock, whose holder may wait for the calling thread. The
 * driver is found without it (shim/real/resolve.c), by every thread for itself. The module that
 * reads models and the unwinder are opened by a thread of the library's own, for which the start
 * waits a bounded time (shim/real/open.c). Reading the options (before the module) and creating
 * core (after it) take only the library's own locks: one thread does each step, and the others wait
 * for that thread, for a moment. A call that re-enters the library during the start passes through.
 *
 * At exit the process ids are compared as well (shim/state.c has the rest of forks), since a child
 * that shares its parent's memory runs the parent's destructors. The real pointers stay usable in
 * every state; core stays whole after the report, for static destructors that run later. */
#define _GNU_SOURCE
#include "core/device/submit.h"
#include "core/io/elf_object.h"
#include "core/plan/plan.h"
#include "shim/account/direct.h"
#include "shim/account/hot.h"
#include "shim/account/measure.h"
#include "shim/account/outside.h"
#include "shim/account/tenant.h"
#include "shim/deep.h"
#include "shim/driver/driver.h"
#include "shim/driver/stream_list.h"
#include "shim/life/exit_report.h"
#include "shim/life/life.h"
#include "shim/life/module.h"
#include "shim/life/tools.h"
#include "shim/real/bypass.h"
#include "shim/real/open.h"
#include "shim/real/resolve.h"
#include "shim/real/unknown.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct {
    struct gc_exit_report report;
    struct gc_region plan_memory;
    struct gc_plan plan;
} life;

static void open_trace(void)
{
    if (gc_shim.options->trace[0] != '\0' &&
        gc_trace_open(gc_shim.options->trace, gc_shim_api_names, GC_API_COUNT, &gc_shim.log,
                      &gc_shim.trace) != GC_OK)
        gc_shim.trace = NULL;
}

/* NULL: no plan is followed. */
static const struct gc_plan *load_plan(void)
{
    const char *path = gc_shim.options->plan;
    struct gc_plan_error error;

    if (path[0] == '\0')
        return NULL;
    gc_region_init(&life.plan_memory, GC_PLAN_REGION_BYTES_MAX);
    const enum gc_status status = gc_plan_load(&life.plan_memory, path, &life.plan, &error);
    if (status == GC_OK)
        return &life.plan;
    gc_log_write(&gc_shim.log, GC_LOG_WARN, "GPUCACHE_PLAN=%s: %s; no plan is followed", path,
                 error.text[0] != '\0' ? error.text : gc_status_text(status));
    life.report.is_plan_refused = true;
    gc_region_fini(&life.plan_memory);
    return NULL;
}

/* Async-signal-safe. */
static void leave_in_child(void)
{
    gc_group_leave_child(gc_shim.core);
    gc_share_leave_child(gc_shim.core);
}

static void join_ledger(void)
{
    gc_core_join(gc_shim.core, life.report.process.program, &gc_shim.doorbell);
    pthread_atfork(NULL, NULL, leave_in_child);
    if (gc_shim.options->ledger_required == 0 || gc_core_has_ledger(gc_shim.core))
        return;
    gc_log_write(&gc_shim.log, GC_LOG_ERROR,
                 "GPUCACHE_LEDGER_REQUIRED=1, and there is no ledger: cuInit fails");
    gc_shim.is_refused = true;
}

/* Whether cuInit must fail if admission lacks host memory: a model is named, and GPUCACHE_GATE is
 * closed. Reads the environment if there was no memory for the options. */
static bool refuses_by_default(void)
{
    const struct gc_options *options = gc_shim.options;
    const char *gate, *model;

    if (options != NULL)
        return options->model[0] != '\0' && gc_admission_is_closed(options->gate);
    gate = secure_getenv("GPUCACHE_GATE");
    model = secure_getenv("GPUCACHE_MODEL");
    return gate != NULL && model != NULL &&
           (strcmp(gate, "deny") == 0 || strcmp(gate, "exit") == 0 ||
            strncmp(gate, "strict", sizeof("strict") - 1) == 0);
}

/* Stacks are walked by the unwinder. */
static void prepare_stacks(void)
{
    if (gc_shim.options->stacks == GC_STACKS_OFF || gc_open_unwinder())
        return;
    gc_shim.options->stacks = GC_STACKS_OFF;
    gc_log_write(
        &gc_shim.log, GC_LOG_WARN,
        "GPUCACHE_STACKS: no call stacks are recorded, since the unwinder cannot be opened: "
        "another thread is loading a library, and waits for this one; call cuInit before "
        "that");
}

/* Collects core's configuration beside options and driver, and the report's facts about the
 * start. */
static void gather(struct gc_core_config *config)
{
    const struct gc_driver *driver = config->driver;

    gc_process_describe(&life.report.process);
    life.report.start_unix = (uint64_t)time(NULL);
    life.report.start_ns = driver->clock_ns(driver->self);
    open_trace();
    config->trace = gc_shim.trace;
    config->plan = load_plan();
}

/* Core exists: from now on calls are served. */
static void begin_service(void)
{
    gc_hot_start();
    gc_shim_count_early();
    join_ledger();
    /* The library is only called by name: the program's submissions pass no wrapper. */
    if (gc_resolve_driver(false) && !gc_resolve_is_interposing())
        gc_unseen_add(GC_UNSEEN_BY_NAME, "CUDA", 0);
    gc_outside_scan();
    if (gc_stream_list_is_needed())
        gc_submit_set_listed(gc_core_submissions(gc_shim.core));
    /* release: pairs with the acquire in gc_life_submissions */
    atomic_store_explicit(&gc_shim.work, gc_core_submissions(gc_shim.core), memory_order_release);
    /* Without a page that is wiped on fork only a system call shows a child: no hot path. */
    if (gc_shim.wiped_on_fork != NULL && gc_shim.options->mode == GC_MODE_CACHE)
        __atomic_store_n(&gc_shim.hot, gc_shim.wiped_on_fork, __ATOMIC_RELEASE);
}

static void read_options(void)
{
    gc_rows_name_apis();
    if (gc_options_load(environ, &gc_shim.log, &gc_shim.options) == GC_OK)
        gc_shim.is_refused = gc_shim.options->refused;
    gc_tools_start();
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
                                    .api_names = gc_shim_api_names,
                                    .api_count = GC_API_COUNT};

    if (gc_shim.options == NULL)
        goto fail;
    if (!has_work())
        return;
    if (!gc_admission_prepare(module))
        goto fail;
    gc_driver_cuda_init(&platform);
    gc_direct_driver_init(&platform);
    gc_measure_driver_init(&platform);
    gc_stream_list_start();
    config.options = gc_shim.options;
    prepare_stacks();
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
    gc_shim.is_refused = refuses_by_default();
    gc_log_write(&gc_shim.log, GC_LOG_ERROR,
                 "no host memory for the start: memory is not cached or limited");
}

/* `argument`: bool, whether it was this thread that created core. */
static void run_start(void *argument)
{
    bool *is_creator = argument;
    struct gc_module module = {0};

    if (gc_shim_start_claim(GC_START_NEW, GC_START_READING)) {
        read_options();
        gc_shim_start_reach(GC_START_READ);
    }
    if (!gc_shim_start_wait(GC_START_READ))
        return;
    if (has_work() && gc_shim.options->model[0] != '\0')
        gc_module_open(&module);
    *is_creator = gc_shim_start_claim(GC_START_READ, GC_START_CREATING);
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
        gc_shim_start_reach(GC_START_OVER);
        atomic_thread_fence(memory_order_seq_cst); /* the partner is in gc_unseen_add */
        gc_unseen_apply();
        gc_bypass_check();
    }
    return gc_shim_start_wait(GC_START_OVER);
}

bool gc_life_ready(void)
{
    /* Walking: in an exit that a signal handler called there. */
    if (gc_thread.depth > 0 || gc_thread.is_starting || gc_elf_is_walking())
        return false;
    gc_resolve_driver(true);
    if (!gc_shim_is_started() && !start())
        return false;
    if (gc_shim.core == NULL)
        return false;
    if (gc_shim_is_child()) {
        leave_in_child(); /* made without fork(): no handler ran */
        return false;
    }
    return true;
}

struct gc_submissions *gc_life_submissions(void)
{
    /* acquire: pairs with the release in begin_service */
    struct gc_submissions *work = atomic_load_explicit(&gc_shim.work, memory_order_acquire);

    if (__builtin_expect(work == NULL, 0)) {
        if (gc_shim_is_started() || !gc_life_ready())
            return NULL;
        work = atomic_load_explicit(&gc_shim.work, memory_order_acquire);
    }
    return gc_shim_is_child() ? NULL : work;
}

static bool is_interrupted(void)
{
    if (!gc_shim_is_interrupted())
        return false;
    gc_shim_enter(GC_API_COUNT); /* destructors that run later pass through */
    gc_log_write(
        &gc_shim.log, GC_LOG_WARN,
        "exit was called by a signal handler in the middle of a call of the library: no report");
    return true;
}

__attribute__((destructor)) static void finish(void)
{
    if (!gc_shim_is_started() || gc_shim.core == NULL || gc_shim_is_child() ||
        gc_shim_is_forked() || is_interrupted())
        return;
    if (gc_elf_is_walking()) /* a signal handler called exit there: the report names no frame */
        gc_elf_end_walks();
    gc_serve_end_help(gc_shim.core);
    gc_share_end(gc_shim.core);
    gc_trace_flush(gc_shim.trace);
    if (gc_device_was_used(gc_shim.core)) {
        if (strcmp(gc_shim.options->report, "none") == 0)
            gc_bypass_check_all(); /* it logs */
        else
            gc_deep_run(gc_exit_report_write, &life.report);
    }
    /* The driver shuts down too: each call checks from now on that it still works. */
    gc_shim_close_hot();
}
