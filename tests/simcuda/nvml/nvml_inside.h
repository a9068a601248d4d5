/* Common to the files of the stand-in. */
#ifndef NVML_INSIDE_H
#define NVML_INSIDE_H

#include "tests/simcuda/nvml/nvml_abi.h"

#include "tests/simcuda/driver/query.h"

#define NVML_EXPORT __attribute__((visibility("default")))

/* The driver's answers; found at the first nvmlInit. */
struct nvml_driver {
    __typeof__(simcuda_device_count) *count;
    __typeof__(simcuda_driver_version) *version;
    __typeof__(simcuda_device_memory) *memory;
    __typeof__(simcuda_device_uuid) *uuid;
    __typeof__(simcuda_device_name) *name;
    __typeof__(simcuda_device_attribute) *attribute;
    __typeof__(simcuda_device_processes) *processes;
};
extern struct nvml_driver sim;

bool nvml_is_up(void);
int nvml_device_count(void);
nvmlDevice_t nvml_handle(int ordinal);
/* Finds the ordinal of a handle: refuses what this library did not give out. */
nvmlReturn_t nvml_check(nvmlDevice_t device, int *ordinal);
/* INSUFFICIENT_SIZE if the text and its end do not fit. */
nvmlReturn_t nvml_put_text(char *to, unsigned length, const char *text);

#endif
