/* The gate: a program that asks for CUDA with a model named gets it where the model's estimate
 * fits. The estimate was made at the start (init.c); what it must fit in is known once the driver
 * is up: the budget, else the limit, else the device; and a group's limit whatever else is said. */
#include "core/estimator/admission.h"
#include "core/base/bits.h"
#include "shim/account/device.h"
#include "shim/deep.h"
#include "shim/life/life.h"
#include "shim/real/resolve.h"

#include <unistd.h>

#define EXIT_DOES_NOT_FIT 3

/* A group's limit may have been set by another process: core knows it once it knows the device. */
static uint64_t group_limit(const struct gc_options *options, CUdevice ordinal)
{
    const struct gc_device *device;

    if (options->group[0] == '\0' || gc_shim.core == NULL ||
        (device = gc_shim_device(ordinal)) == NULL)
        return UINT64_MAX;
    return gc_device_limit_bytes(device);
}

/* False if there is no such device. */
static bool describe(const struct gc_options *options, CUdevice ordinal,
                     struct gc_gate_device *device)
{
    char uuid[GC_UUID_BYTES];
    uint64_t total, bytes;

    if (!gc_shim_describe_device(ordinal, &total, uuid))
        return false;
    bytes = gc_size_spec_resolve(&options->budget, ordinal, uuid, total);
    if (bytes == UINT64_MAX)
        bytes = gc_min_u64(gc_size_spec_resolve(&options->limit, ordinal, uuid, total), total);
    device->budget_bytes = gc_min_u64(bytes, group_limit(options, ordinal));
    bytes = gc_size_spec_resolve(&options->context_memory, ordinal, uuid, total);
    if (bytes == UINT64_MAX)
        bytes = gc_shim.core != NULL ? gc_core_context_bytes(gc_shim.core, uuid, total) : 0;
    device->context_bytes = bytes;
    return true;
}

/* The first ones that the program sees. */
static void describe_all(const struct gc_options *options, uint32_t wanted,
                         struct gc_gate_devices *devices)
{
    int there = 0;

    devices->count = 0;
    if (GC_USE(cuDeviceGetCount, &there) != CUDA_SUCCESS)
        return;
    while (devices->count < wanted && (int)devices->count < there &&
           describe(options, (CUdevice)devices->count, &devices->items[devices->count]))
        devices->count++;
}

static CUresult close_gate(enum gc_admission gate, enum gc_gate_verdict verdict)
{
    if (gate == GC_ADMISSION_OFF || gate == GC_ADMISSION_WARN)
        return CUDA_SUCCESS;
    if (verdict == GC_GATE_UNREADABLE)
        return CUDA_ERROR_INVALID_VALUE;
    if (gate == GC_ADMISSION_EXIT)
        _exit(
            EXIT_DOES_NOT_FIT); /* asked for; the program's own handlers expect a CUDA that works */
    return CUDA_ERROR_OUT_OF_MEMORY;
}

struct judgement {
    struct gc_gate_devices devices;
    enum gc_gate_verdict verdict;
};

static void judge(void *argument)
{
    struct judgement *it = argument;

    it->verdict = gc_gatekeeper_judge(gc_shim.gatekeeper, &it->devices, &gc_shim.log);
}

CUresult gc_gate_pass(void)
{
    struct judgement it;

    if (gc_shim.gatekeeper == NULL)
        return CUDA_SUCCESS;
    gc_shim_enter(GC_API_cuInit);
    describe_all(gc_shim.options, gc_gatekeeper_device_count(gc_shim.gatekeeper), &it.devices);
    gc_shim_leave();
    gc_deep_run(judge, &it);
    return it.verdict == GC_GATE_FITS ? CUDA_SUCCESS
                                      : close_gate(gc_shim.options->gate, it.verdict);
}
