/* Settings that only calls.c, engine_device.c and engine_launch.c read; sim_settings() in sim.h has
 * the rest. */
#ifndef SIM_SETTINGS_H
#define SIM_SETTINGS_H

#include "tests/simcuda/sim.h"

#define SIM_MAX_ENTRY 64

struct sim_latency {
    char entry[SIM_MAX_ENTRY]; /* "*": every entry */
    uint64_t duration_ns;
};

struct sim_failure {
    char entry[SIM_MAX_ENTRY];
    uint64_t first; /* the call that fails, counted from 1 */
    bool goes_on;   /* and every later one */
    CUresult result;
    atomic_uint_fast64_t calls;
};

struct sim_attribute {
    int number, value;
};

struct sim_kernel {
    char name[256];
    uint64_t work_us;
};

struct sim_private_settings {
    struct sim_latency *latencies; /* the first that matches counts */
    size_t latency_count;
    struct sim_failure *failures;
    size_t failure_count;
    struct sim_attribute *attributes; /* of the device, that SIMCUDA_ATTRIBUTES changes */
    size_t attribute_count;
    struct sim_kernel *kernels; /* that take longer than other work */
    size_t kernel_count;
    int journal_fd; /* -1: none */
};
const struct sim_private_settings *sim_private_settings(void);

/* The code of an error by name or number; false if there is none. */
bool sim_error_by_name(const char *name, size_t length, CUresult *result);

#endif
