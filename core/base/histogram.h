/* A lock-free histogram of nanoseconds with log-linear buckets: values below 32 exactly, above that
 * 16 buckets per power of two. A percentile is the upper end of the bucket that holds it, so it is
 * at most 1/16 (6.25 %) above a value that was recorded and never below it; the maximum is exact.
 *
 * Zero bytes are an empty histogram. Adding is two relaxed atomics; reading is wait-free and may
 * miss what is added meanwhile. */
#ifndef GC_HISTOGRAM_H
#define GC_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#define GC_HISTOGRAM_SUB_BITS 4
#define GC_HISTOGRAM_BUCKETS ((64 - GC_HISTOGRAM_SUB_BITS + 1) << GC_HISTOGRAM_SUB_BITS)

struct gc_histogram {
    _Atomic uint64_t counts[GC_HISTOGRAM_BUCKETS];
    _Atomic uint64_t max;
};

struct gc_latency {
    uint64_t count;
    uint64_t p50; /* ns, as are the next two; all 0 when nothing was recorded */
    uint64_t p99;
    uint64_t max;
    uint64_t powers[64]; /* [i]: values below 2^(i+1), but not below 2^i; 0 with 1 */
};

void gc_histogram_add(struct gc_histogram *histogram, uint64_t ns);
/* The same value `count` times: a sample that stands for so many. */
void gc_histogram_add_many(struct gc_histogram *histogram, uint64_t ns, uint64_t count);
void gc_histogram_read(const struct gc_histogram *histogram, struct gc_latency *latency);

#endif
