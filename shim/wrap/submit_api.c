/* Calls that do nothing but submit work: kernels, copies, fills and the rest of the SUBMIT rows,
 * from which all wrappers are made. Each counts, and does nothing else in a process with one
 * context.
 *
 * "Synchronous" calls count like the others: a fill or a copy within the device returns before it
 * is done.
 *
 * With several contexts it is noted whose memory the work may reach (reach.h). While a tenant is
 * paused the addresses that it names are looked at too: what is of the tenant waits. */
#include "shim/account/tenant.h"
#include "shim/driver/capture_guard.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"
#include "shim/wrap/reach.h"
#include "shim/wrap/submit.h"

#include "core/device/wait.h"
#include "core/pause/pause.h"

CUresult gc_shim_submit_begin_slow(uint64_t key)
{
    int driver_code = 0;

    gc_shim_enter(GC_API_COUNT);
    const bool may = gc_submit_begin(gc_shim.core, key, &driver_code);
    gc_shim_leave();
    if (may)
        return CUDA_SUCCESS;
    return driver_code != 0 ? (CUresult)driver_code : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void gc_shim_submit_serve(void)
{
    if (gc_thread.depth != 0 || !gc_shim_ready())
        return;
    gc_shim_enter(GC_API_COUNT);
    gc_core_serve(gc_shim.core);
    gc_shim_leave();
}

/* ---- while something is paused ---- */

void gc_shim_submit_enter_gate_slow(struct gc_submissions *work, enum gc_gate_mode mode,
                                    const void *caller)
{
    gc_shim_enter(GC_API_COUNT); /* a request served meanwhile may call the driver */
    const struct gc_tenant *tenant = gc_tenants_of_work(caller);
    while (mode != GC_GATE_OPEN) {
        if (mode == GC_GATE_CLOSED) {
            gc_wait_resume(gc_shim.core);
        } else {
            if (tenant == NULL || !gc_tenant_is_paused(tenant))
                break;
            gc_gate_leave(&work->gate);
            gc_wait_tenant(gc_shim.core, tenant);
        }
        mode = gc_gate_try_enter(&work->gate);
    }
    gc_shim_leave();
}

/* Leaves, waits, and is inside again. */
static void wait_tenant(struct gc_submissions *work, const struct gc_tenant *tenant,
                        const void *caller)
{
    gc_gate_leave(&work->gate);
    gc_shim_enter(GC_API_COUNT);
    gc_wait_tenant(gc_shim.core, tenant);
    gc_shim_leave();
    gc_shim_submit_enter_gate(work, caller);
}

static const struct gc_tenant *find_paused(uint64_t to, uint64_t from)
{
    const struct gc_tenant *tenant = gc_core_find_paused(gc_shim.core, to);

    return tenant != NULL ? tenant : gc_core_find_paused(gc_shim.core, from);
}

void gc_shim_submit_wait_memory(struct gc_submissions *work, uint64_t to, uint64_t from,
                                const void *caller)
{
    const struct gc_tenant *tenant;

    while (gc_shim_submit_is_guarded(work) && (tenant = find_paused(to, from)) != NULL)
        wait_tenant(work, tenant, caller);
}

/* ---- which stream ---- */

/* A kernel that may start before its stream's earlier ones have ended is not ordered behind them.
 */
static CUstream stream_of(const CUlaunchConfig *config)
{
    if (config == NULL)
        return NULL;
    for (unsigned i = 0; config->attrs != NULL && i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ||
            config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
            return (CUstream)((uintptr_t)config->hStream | GC_STREAM_UNORDERED); /* NOLINT */
    return config->hStream;
}

#define SEVERAL_STREAMS ((CUstream)(uintptr_t)GC_STREAM_OTHER) /* NOLINT: no handle */

static CUstream stream_at(const CUstream *stream)
{
    return stream == NULL ? NULL : *stream;
}

/* ---- whose memory: with several contexts, and while a tenant is paused (reach.h) ---- */

/* Whether there may be anything to look for. */
static inline bool must_search(const struct gc_submissions *work)
{
    return work != NULL &&
           (gc_core_has_several_contexts(gc_shim.core) || gc_shim_submit_is_guarded(work)) &&
           gc_thread.depth == 0;
}

/* True: the memory was away, and is to be looked at again. */
static bool is_still_away(const struct gc_reach *reach, struct gc_submissions *work,
                          const void *caller)
{
    if (reach->paused_tenant == NULL)
        return false;
    wait_tenant(work, reach->paused_tenant, caller);
    return true;
}

/* ---- waiting where the program asked for it ---- */

/* While a block has SYNC_MEMOPS, which the driver does not take for mapped memory, calls that are
 * synchronous by name are so. */
static void wait_for_memops(bool is_per_thread)
{
    CUstream stream = is_per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;

    if (!gc_stream_is_capturing(stream))
        (void)GC_CALL(NULL, cuStreamSynchronize, stream);
}

/* The rows' `wait` column. */
enum { WAIT_ASYNC, WAIT_SYNC };

/* ---- the wrappers ---- */

/* The driver's answer; a driver that was loaded after the library had started is found here. */
#define QUERY(symbol, arguments)                                                                   \
    (!is_there(GC_ROW_##symbol) ? CUDA_ERROR_NOT_SUPPORTED                                         \
                                : gc_shim_check_result(GC_REAL(symbol) arguments))

static inline bool is_there(enum gc_row_id row)
{
    return gc_row_real(&gc_rows[row]) != NULL || (gc_resolve_driver(true) && gc_resolve_row(row));
}

#define API(...)
#define USE(...)
#define RUNTIME(...)
#define SUBMIT(symbol, base, version, variant, stream, wait, word, operands, parameters,           \
               arguments)                                                                          \
    GC_EXPORT                                                                                      \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        struct gc_submissions *work;                                                               \
        CUresult result = gc_shim_submit_enter(                                                    \
            gc_shim_submit_key(stream, GC_VARIANT_##variant == GC_VARIANT_PTSZ), &work,            \
            GC_CALLER);                                                                            \
                                                                                                   \
        if (__builtin_expect(result != CUDA_SUCCESS, 0))                                           \
            return result;                                                                         \
        bool is_away = GC_REACH_LOOKS(word) && must_search(work);                                  \
        while (__builtin_expect(is_away, 0)) {                                                     \
            gc_shim_enter(GC_API_##symbol);                                                        \
            struct gc_reach reach = gc_reach_of_stream(stream, gc_shim_submit_is_guarded(work));   \
            GC_REACH(&reach, word, operands);                                                      \
            gc_shim_leave();                                                                       \
            is_away = is_still_away(&reach, work, GC_CALLER);                                      \
        }                                                                                          \
        result = QUERY(symbol, arguments);                                                         \
        gc_shim_submit_end(work);                                                                  \
        if (WAIT_##wait == WAIT_SYNC && work != NULL &&                                            \
            atomic_load_explicit(&work->synchronous_count, memory_order_relaxed) != 0)             \
            wait_for_memops(GC_VARIANT_##variant == GC_VARIANT_PTSZ);                              \
        return result;                                                                             \
    }
#define PASS(symbol, base, version, variant, parameters, arguments)                                \
    GC_EXPORT                                                                                      \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        gc_shim_count(NULL, GC_API_##symbol);                                                      \
        return QUERY(symbol, arguments);                                                           \
    }
#include "shim/api.def"
