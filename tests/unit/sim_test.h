/* Common to the tests of the simulated driver. Each names the documented rule it pins. */
#ifndef SIM_TEST_H
#define SIM_TEST_H

#include "tests/unit/cmocka_all.h"

#include <cuda.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#define assert_result(call, expected) assert_int_equal((int)(call), (int)(expected))
#define assert_cuda(call) assert_result(call, CUDA_SUCCESS)

/* Host functions to submit: count up, and wait to be let through. */
struct gate {
    atomic_bool is_open;
    atomic_int passed;
};

static inline void wait_at_gate(void *argument)
{
    struct gate *gate = argument;
    while (!atomic_load(&gate->is_open))
        usleep(100);
    atomic_fetch_add(&gate->passed, 1);
}

static inline void count_up(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

static CUcontext test_context;

static inline int make_context(void **state)
{
    (void)state;
    return cuInit(0) || cuCtxCreate(&test_context, NULL, 0, 0);
}

static inline int drop_context(void **state)
{
    CUcontext popped;
    (void)state;
    return cuCtxPopCurrent(&popped) || cuCtxDestroy(test_context);
}

#endif
