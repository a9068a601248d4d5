/* NVML as the program has it: found, never started. See nvml.c and shim/wrap/nvml_api.c. */
#ifndef GC_NVML_H
#define GC_NVML_H

#include "shim/shim.h"

#define GC_NVML_NAME "libnvidia-ml" /* for gc_elf_is_library */

/* Finds NVML among the loaded objects and fills its rows. From then on NVML stays loaded, so that
 * the pointers stay valid. Never waits for another thread. False if there is no NVML. Another
 * thread may still be loading it: for calls of the program's own, which has loaded it. */
bool gc_nvml_find(void);
/* Before the library's own calls of NVML: as gc_nvml_find, and its load has ended: gc_open_object
 * waits for it. `load`: loads it, if it is not there. */
bool gc_nvml_open(bool load);

/* CUDA's number of this device, as far as the environment proves it in a process that has not
 * started CUDA; -1 if it is uncertain. */
int gc_nvml_ordinal(struct nvmlDevice_st *device, const char *uuid);

/* The real entry points, or NULL: GC_REAL(nvmlDeviceGetUUID). */

#endif
