/* Common to the tests of the simulated device's memory. Each program runs on 1 GiB devices of its
 * own. */
#ifndef SIM_MEMORY_TEST_H
#define SIM_MEMORY_TEST_H

#include "tests/unit/cmocka_all.h"

#include <cuda.h>

#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define PAGE (2 * MIB)

/* The result a call must give. */
#define MUST(call) assert_int_equal((call), CUDA_SUCCESS)
#define MUST_BE(result, call) assert_int_equal((call), (result))

static inline size_t free_bytes(void)
{
    size_t free_now, total;

    MUST(cuMemGetInfo(&free_now, &total));
    return free_now;
}

static inline unsigned char byte_at(CUdeviceptr address)
{
    unsigned char byte;

    MUST(cuMemcpyDtoH(&byte, address, 1));
    return byte;
}

/* Starts the driver on `devices` devices with device 0's primary context current. */
static inline int start_device(const char *devices)
{
    CUcontext context;

    setenv("SIMCUDA_DEVICES", devices, 1);
    setenv("SIMCUDA_MEMORY", "1GiB", 0);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0))
        return 1;
    return cuCtxSetCurrent(context);
}

#endif
