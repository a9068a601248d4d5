/* The mode and the memory behind the cache, as the library will choose them here. */
#ifndef GC_DOCTOR_BACKEND_H
#define GC_DOCTOR_BACKEND_H

#include "core/config/options.h"
#include "tools/doctor/doctor.h"

struct doctor_backend_facts {
    const char *topic; /* "device 0" */
    bool maps_memory;
    bool is_shared_by_server;
    int unreachable; /* a visible device without peer access to or from this one; -1: none */
};
/* One finding: where the device's memory comes from, and why. */
void doctor_backend_report(struct doctor *doctor, const struct doctor_backend_facts *facts);

/* Whether CUDA_INJECTION64_PATH names a memory checker. */
bool doctor_backend_checker_is_injected(void);
/* Whether the library only tracks: by GPUCACHE_MODE, or beside a memory checker. */
bool doctor_backend_is_tracked(const struct gc_options *options);

#endif
