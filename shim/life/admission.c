/* Admission: a program that starts CUDA with a model named may go on if the model's estimate fits.
 * The estimate was made at the start (init.c); its bound is known once the driver is up: the
 * budget, else the limit, else the device; and a group's limit in any case. */
#include "core/base/bits.h"
#include "shim/account/device.h"
#include "shim/deep.h"
#include "shim/life/life.h"
#include "shim/life/module.h"
#include "shim/real/resolve.h"

#include <string.h>
#include <unistd.h>

#define EXIT_DOES_NOT_FIT 3

/* Written by the start, constant afterwards. */
static struct {
    const struct gc_model_module *calls; /* NULL: no model is named, or see reason */
    struct gc_admission_state *admission;
    atomic_flag is_logged; /* `reason` was logged */
    char reason[GC_MODULE_REASON_BYTES];
} state = {.is_logged = ATOMIC_FLAG_INIT};

bool gc_admission_prepare(const struct gc_module *module)
{
    gc_shim.has_model = gc_shim.options->model[0] != '\0';
    if (!gc_shim.has_model)
        return true;
    memcpy(state.reason, module->reason, sizeof(state.reason));
    state.calls = module->calls;
    return state.calls == NULL || state.calls->open(gc_shim.options, &state.admission) == GC_OK;
}

/* A group's limit may have been set by another process: core knows it once it knows the device. */
static uint64_t group_limit(const struct gc_options *options, CUdevice ordinal)
{
    const struct gc_device *device;

    if (options->group[0] == '\0' || gc_shim.core == NULL ||
        (device = gc_account_device(ordinal)) == NULL)
        return UINT64_MAX;
    return gc_device_limit_bytes(device);
}

/* False if there is no such device. */
static bool describe(const struct gc_options *options, CUdevice ordinal,
                     struct gc_admission_device *device)
{
    char uuid[GC_UUID_BYTES];
    uint64_t total, bytes;

    if (!gc_account_describe_device(ordinal, &total, uuid))
        return false;
    bytes = gc_size_spec_resolve(&options->budget, ordinal, uuid, total);
    if (bytes == UINT64_MAX)
        bytes = gc_min_u64(gc_size_spec_resolve(&options->limit, ordinal, uuid, total), total);
    device->budget_bytes = gc_min_u64(bytes, group_limit(options, ordinal));
    bytes = gc_size_spec_resolve(&options->context_memory, ordinal, uuid, total);
    if (bytes == UINT64_MAX)
        bytes =
            gc_shim.core != NULL ? gc_group_measured_context_bytes(gc_shim.core, uuid, total) : 0;
    device->context_bytes = bytes;
    return true;
}

/* The first `wanted` devices that the program sees. */
static void describe_all(const struct gc_options *options, uint32_t wanted,
                         struct gc_admission_devices *devices)
{
    int there = 0;

    devices->count = 0;
    if (GC_USE(cuDeviceGetCount, &there) != CUDA_SUCCESS)
        return;
    while (devices->count < wanted && (int)devices->count < there &&
           describe(options, (CUdevice)devices->count, &devices->items[devices->count]))
        devices->count++;
}

static CUresult admission_result(enum gc_admission word, enum gc_admission_verdict verdict)
{
    if (!gc_admission_is_closed(word))
        return CUDA_SUCCESS;
    if (verdict == GC_ADMISSION_UNREADABLE)
        return CUDA_ERROR_INVALID_VALUE;
    if (word == GC_ADMISSION_EXIT || word == GC_ADMISSION_STRICT_EXIT)
        _exit(EXIT_DOES_NOT_FIT); /* by the user's choice; the program's own handlers expect a
                                     working CUDA */
    return CUDA_ERROR_OUT_OF_MEMORY;
}

struct decision {
    struct gc_admission_devices devices;
    enum gc_admission_verdict verdict;
};

static void check_model(void *argument)
{
    struct decision *it = argument;

    it->verdict = state.calls->decide(state.admission, &it->devices, &gc_shim.log);
}

/* As with a model that cannot be read: there is no estimate. */
static CUresult refuse_without_module(enum gc_admission word)
{
    gc_log_once(&gc_shim.log, &state.is_logged,
                word == GC_ADMISSION_OFF ? GC_LOG_INFO : GC_LOG_ERROR, "GPUCACHE_MODEL: %s",
                state.reason);
    return admission_result(word, GC_ADMISSION_UNREADABLE);
}

CUresult gc_admission_check(void)
{
    struct decision it;

    if (!gc_shim.has_model)
        return CUDA_SUCCESS;
    if (state.calls == NULL)
        return refuse_without_module(gc_shim.options->gate);
    gc_shim_enter(GC_API_cuInit);
    describe_all(gc_shim.options, state.calls->device_count(state.admission), &it.devices);
    gc_shim_leave();
    gc_deep_run(check_model, &it);
    return it.verdict == GC_ADMISSION_FITS ? CUDA_SUCCESS
                                           : admission_result(gc_shim.options->gate, it.verdict);
}

bool gc_admission_report(struct gc_report_estimate *estimate)
{
    return state.calls != NULL && state.calls->describe(state.admission, estimate);
}
