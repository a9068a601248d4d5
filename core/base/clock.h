/* The monotonic clock of the machine, the same in all processes. Core decides by
 * gc_driver.clock_ns, which tests can set. This clock is for times that processes share, and for
 * implementations of struct gc_driver. Thread-safe; keeps errno. */
#ifndef GC_CLOCK_H
#define GC_CLOCK_H

#include <stdint.h>
#include <time.h>

#define GC_NS_PER_MS UINT64_C(1000000)
#define GC_NS_PER_S UINT64_C(1000000000)

static inline uint64_t gc_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * GC_NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline int64_t gc_clock_ms(void)
{
    return (int64_t)(gc_clock_ns() / GC_NS_PER_MS);
}

#endif
