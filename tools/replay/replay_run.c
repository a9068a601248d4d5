#include "tools/replay/replay_run.h"
#include "core/report/snapshot.h"

#include "core/base/clock.h"
#include "core/core.h"
#include "core/device/submit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT_HANDLE 1
enum api { API_ALLOC, API_FREE, API_COUNT };
static const char *const api_names[API_COUNT] = {"alloc", "free"};

struct run {
    const struct replay_trace *trace;
    const struct replay_setup *setup;
    struct replay_result *result;
    struct replay_device device;
    struct gc_options *options;
    struct gc_core *core;
    struct gc_context *context;
    pthread_mutex_t start; /* held until all threads exist; guards is_abandoned */
    bool is_abandoned;     /* a thread could not be started */
    pthread_barrier_t gate;
};

struct worker {
    struct run *run;
    pthread_t thread;
    struct gc_tcache *cache; /* per thread, as in the shim */
    struct gc_submitter *line;
    uint64_t *addresses; /* by slot; GC_ADDRESS_NONE after a failed request */
    uint64_t ns;         /* of the last pass */
    uint64_t ooms;       /* of the last pass */
    enum gc_status status;
};

/* ---- one thread ---- */

/* Submits work that uses the allocation, so that its free depends on a fence. As a wrapper does
 * it: gc_submit_begin is for all but the stream of the work before. */
static void submit(const struct worker *worker, uint64_t stream)
{
    struct gc_core *core = worker->run->core;
    struct gc_submissions *work = gc_core_submissions(core);
    const uint64_t named = stream != GC_STREAM_NONE ? stream : GC_STREAM_LEGACY;
    int ignored; /* the simulated device does not fail */
    if (atomic_load_explicit(&work->quick_stream, memory_order_seq_cst) != named)
        (void)gc_submit_begin(core, named, &ignored);
    gc_submitter_end(work, worker->line);
}

static enum gc_status allocate(struct worker *worker, const struct replay_event *event)
{
    struct run *run = worker->run;
    uint64_t *address = &worker->addresses[event->slot];
    const struct gc_request request = {
        .bytes = event->bytes, .stream = event->stream, .api = API_ALLOC};
    int driver_code;
    enum gc_status status = GC_OK;
    *address = GC_ADDRESS_NONE;
    if (event->stream == 0 && worker->cache != NULL)
        *address = gc_tcache_alloc_bytes(worker->cache, run->context, event->bytes, API_ALLOC);
    if (*address == GC_ADDRESS_NONE && event->stream == 0)
        *address = gc_tcache_alloc_from_pool(worker->cache, run->context, event->bytes, API_ALLOC);
    if (*address == GC_ADDRESS_NONE)
        status = gc_alloc(run->core, run->context, &request, address, &driver_code);
    if (status == GC_OUT_OF_MEMORY) {
        *address = GC_ADDRESS_NONE;
        worker->ooms++;
        return GC_OK;
    }
    if (status == GC_OK)
        submit(worker, event->stream);
    return status;
}

static enum gc_status release(struct worker *worker, const struct replay_event *event)
{
    struct run *run = worker->run;
    const uint64_t address = worker->addresses[event->slot];
    int driver_code;
    if (address == GC_ADDRESS_NONE || gc_tcache_free(run->core, worker->cache, address) ||
        gc_tcache_free_to_pool(run->core, worker->cache, address))
        return GC_OK;
    return gc_free(run->core, address, API_FREE, &driver_code);
}

static void pass(struct worker *worker)
{
    const struct replay_trace *trace = worker->run->trace;
    const uint64_t start_ns = gc_clock_ns();
    for (size_t i = 0; worker->status == GC_OK && i < trace->count; i++) {
        const struct replay_event *event = &trace->events[i];
        worker->status = event->bytes > 0 ? allocate(worker, event) : release(worker, event);
    }
    worker->ns = gc_clock_ns() - start_ns;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    pthread_mutex_lock(&worker->run->start);
    const bool is_abandoned = worker->run->is_abandoned;
    pthread_mutex_unlock(&worker->run->start);
    if (is_abandoned)
        return NULL;
    worker->cache = gc_tcache_create(worker->run->core);
    worker->line = gc_submitter_create(worker->run->core);
    for (unsigned i = 0; i < worker->run->setup->passes; i++) {
        pthread_barrier_wait(&worker->run->gate);
        worker->ooms = 0;
        if (worker->status == GC_OK)
            pass(worker);
        pthread_barrier_wait(&worker->run->gate);
    }
    if (worker->line != NULL)
        gc_submitter_destroy(worker->line);
    gc_tcache_destroy(worker->run->core, worker->cache);
    return NULL;
}

/* ---- the passes, in the leading thread ---- */

struct totals {
    uint64_t driver_calls;
    uint64_t driver_ns;
    uint64_t hits;
    uint64_t misses;
};

static enum gc_status read_totals(struct run *run, struct totals *totals)
{
    struct gc_snapshot *snapshot;
    const enum gc_status status = gc_snapshot_take(run->core, &snapshot);
    if (status != GC_OK)
        return status;
    const struct gc_device_snapshot *device = &snapshot->devices[0];
    *totals = (struct totals){.hits = device->hit_count, .misses = device->miss_count};
    replay_device_totals(&run->device, &totals->driver_calls, &totals->driver_ns);
    struct replay_result *result = run->result;
    result->peak_live_bytes = device->requested.peak;
    result->oom_count = device->oom_count;
    result->host_metadata_bytes = device->host_metadata_bytes;
    result->limit_bytes = device->limit_bytes;
    result->plan = device->plan;
    gc_snapshot_free(snapshot);
    return GC_OK;
}

static enum gc_status lead(struct run *run, struct worker *workers)
{
    const struct replay_setup *setup = run->setup;
    struct totals before = {.hits = 0};
    struct totals after = {.hits = 0};
    enum gc_status status = GC_OK;
    for (unsigned i = 0; i < setup->passes; i++) {
        struct replay_pass *pass_result = &run->result->passes[i];
        pthread_barrier_wait(&run->gate);
        pthread_barrier_wait(&run->gate);
        for (unsigned t = 0; t < setup->threads; t++) {
            if (workers[t].ns > pass_result->ns)
                pass_result->ns = workers[t].ns;
            pass_result->ooms += workers[t].ooms;
            if (status == GC_OK)
                status = workers[t].status;
        }
        const enum gc_status read = read_totals(run, &after);
        if (status == GC_OK)
            status = read;
        pass_result->driver_calls = after.driver_calls - before.driver_calls;
        pass_result->driver_ns = after.driver_ns - before.driver_ns;
        pass_result->hits = after.hits - before.hits;
        pass_result->misses = after.misses - before.misses;
        before = after;
    }
    return status;
}

/* Starts all threads or none: the barrier waits for all of them. */
static enum gc_status start_and_lead(struct run *run, struct worker *workers)
{
    const unsigned threads = run->setup->threads;
    enum gc_status status = GC_NO_HOST_MEMORY;
    unsigned started = 0;
    pthread_mutex_lock(&run->start);
    while (started < threads &&
           pthread_create(&workers[started].thread, NULL, work, &workers[started]) == 0)
        started++;
    run->is_abandoned = started < threads;
    pthread_mutex_unlock(&run->start);
    if (started == threads)
        status = lead(run, workers);
    for (unsigned i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    return status;
}

static enum gc_status run_workers(struct run *run)
{
    const unsigned threads = run->setup->threads;
    struct worker *workers = calloc(threads, sizeof(*workers));
    enum gc_status status = GC_NO_HOST_MEMORY;
    if (workers == NULL)
        return status;
    for (unsigned i = 0; i < threads; i++) {
        workers[i].run = run;
        workers[i].addresses = calloc((size_t)run->trace->slot_count + 1, sizeof(uint64_t));
        if (workers[i].addresses == NULL)
            goto end;
    }
    if (pthread_barrier_init(&run->gate, NULL, threads + 1) != 0)
        goto end;
    status = start_and_lead(run, workers);
    pthread_barrier_destroy(&run->gate);
end:
    for (unsigned i = 0; i < threads; i++)
        free(workers[i].addresses);
    free(workers);
    return status;
}

/* ---- a core over a device ---- */

/* The library's defaults and the setup; this process's environment is not read. */
static struct gc_options *make_options(const struct replay_setup *setup)
{
    char *const environment[] = {NULL};
    const struct gc_options_source source = {.environment = environment};
    struct gc_options *options = malloc(sizeof(*options));
    if (options == NULL)
        return NULL;
    gc_options_read(&source, NULL, options);
    options->mode = setup->mode;
    options->backend = setup->backend;
    options->limit = setup->limit;
    return options;
}

static enum gc_status open_core(struct run *run)
{
    const struct replay_setup *setup = run->setup;
    const struct gc_core_config config = {.options = run->options,
                                          .driver = &run->device.table,
                                          .plan = setup->plan,
                                          .api_names = api_names,
                                          .api_count = API_COUNT};
    struct gc_device_info info = {
        .ordinal = 0, .name = "replay", .total_bytes = setup->memory_bytes};
    struct gc_device *device;
    if (setup->backend == GC_BACKEND_VMM) {
        info.has_mapping = true;
        info.page_bytes = REPLAY_PAGE_BYTES;
    }
    enum gc_status status = gc_core_create(&config, &run->core);
    if (status == GC_OK)
        status = gc_setup_add_device(run->core, &info, &device);
    if (status == GC_OK)
        status = gc_setup_add_context(run->core, CONTEXT_HANDLE, device, &run->context);
    return status;
}

enum gc_status replay_run(const struct replay_trace *trace, const struct replay_setup *setup,
                          struct replay_result *result)
{
    struct run run = {.trace = trace, .setup = setup, .result = result};
    memset(result, 0, sizeof(*result));
    pthread_mutex_init(&run.start, NULL);
    replay_device_init(&run.device, setup->memory_bytes);
    enum gc_status status = GC_NO_HOST_MEMORY;
    run.options = make_options(setup);
    if (run.options != NULL)
        status = open_core(&run);
    if (status == GC_OK)
        status = run_workers(&run);
    result->peak_reserved_bytes = run.device.peak_bytes;
    result->peak_handle_count = run.device.peak_handle_count;
    memcpy(result->calls, run.device.calls, sizeof(result->calls));
    result->fault = run.device.first_fault;
    gc_core_destroy(run.core);
    free(run.options);
    replay_device_fini(&run.device);
    pthread_mutex_destroy(&run.start);
    return status;
}
