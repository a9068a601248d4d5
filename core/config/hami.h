/* HAMi's variables, so that the library can replace HAMi-core's memory limit. The library's own
 * variables take precedence.
 *
 * CUDA_DEVICE_MEMORY_LIMIT and CUDA_DEVICE_MEMORY_LIMIT_<i> limit each process. If
 * CUDA_DEVICE_MEMORY_SHARED_CACHE is set, too, they limit a group, all processes with the same text
 * there, since HAMi's limit is a container's. If CUDA_DISABLE_CONTROL is true, these are not read
 * and mode is off. Other variables of HAMi are not served; those that would mislead in silence are
 * logged. */
#ifndef GC_OPTIONS_HAMI_H
#define GC_OPTIONS_HAMI_H

#include "core/config/options.h"

struct gc_hami_value {
    const char *name; /* borrowed; name_length bytes */
    size_t name_length;
    const char *text; /* borrowed; NULL: not set */
    bool from_config;
};

/* <i> has slot i; the name without a number has the next slot. The last slot is for an <i> that is
 * no device's number: no process can honour it. */
#define GC_HAMI_FOR_ALL GC_SIZE_SPEC_MAX
#define GC_HAMI_BAD (GC_SIZE_SPEC_MAX + 1)
#define GC_HAMI_SLOTS (GC_SIZE_SPEC_MAX + 2)

enum gc_hami_other {
    GC_HAMI_SHARED_CACHE,
    GC_HAMI_DISABLE_CONTROL,
    GC_HAMI_SM_LIMIT,
    GC_HAMI_CORE_POLICY,
    GC_HAMI_OVERSUBSCRIBE,
    GC_HAMI_TASK_PRIORITY,
    GC_HAMI_OTHERS,
};

struct gc_hami {
    struct gc_hami_value limits[GC_HAMI_SLOTS];
    struct gc_hami_value others[GC_HAMI_OTHERS];
};

/* Keeps the first value of each name above. False: another name. */
bool gc_hami_set(struct gc_hami *hami, const struct gc_hami_value *value);

struct gc_hami_visitor {
    void *argument;
    /* Called for a limit that is no size: cuInit must fail. */
    void (*refuse)(void *argument, const struct gc_hami_value *value);
    /* Called for a variable that is not served; `why` completes the line. */
    void (*ignore)(void *argument, const struct gc_hami_value *value, const char *why);
};
/* Call after the library's own options were read. */
void gc_hami_apply(const struct gc_hami *hami, struct gc_options *options,
                   const struct gc_hami_visitor *visitor);

#endif
