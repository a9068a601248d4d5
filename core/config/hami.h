/* HAMi's variables, so that the library can stand in for HAMi-core's limit on memory. Our own
 * variables go before them.
 *
 * CUDA_DEVICE_MEMORY_LIMIT, CUDA_DEVICE_MEMORY_LIMIT_<i>  the limit of every process; with
 * CUDA_DEVICE_MEMORY_SHARED_CACHE  also that of all processes that have the same text there, which
 *     then are a group: HAMi's limit is a container's
 * CUDA_DISABLE_CONTROL  true: none of these counts, and mode is off
 * Of the others those whose silence would mislead are said not to be served. */
#ifndef GC_OPTIONS_HAMI_H
#define GC_OPTIONS_HAMI_H

#include "core/config/options.h"

struct gc_hami_value {
    const char *name; /* borrowed, name_length bytes of it */
    size_t name_length;
    const char *text; /* borrowed; NULL: not set */
    bool from_config;
};

/* <i> has slot i, the name without a number the next one; the last one is for an <i> that is no
 * device's number, which nobody can honour. */
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

/* Keeps the value if the name is one of the above; the first value a name gets stays. */
bool gc_hami_set(struct gc_hami *hami, const struct gc_hami_value *value);

struct gc_hami_visitor {
    void *argument;
    /* A limit that is no size: CUDA must be refused. */
    void (*refuse)(void *argument, const struct gc_hami_value *value);
    /* What is not served: `why` completes the line. */
    void (*ignore)(void *argument, const struct gc_hami_value *value, const char *why);
};
/* After our own options were read. */
void gc_hami_apply(const struct gc_hami *hami, struct gc_options *options,
                   const struct gc_hami_visitor *visitor);

#endif
