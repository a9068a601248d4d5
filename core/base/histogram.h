/* A lock-free histogram of nanoseconds with log-linear buckets (as in HdrHistogram): exact below
 * 32, 16 buckets per power of two above. A percentile is the upper end of its bucket: at most 1/16
 * (6.25 %) above a recorded value and never below it. The maximum is exact.
 *
 * Zero bytes are an empty histogram. An addition is two relaxed atomics. Reading is wait-free and
 * may miss concurrent additions. */
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
    uint64_t p50; /* ns, as are the next two; all 0 if nothing was recorded */
    uint64_t p99;
    uint64_t max;
    uint64_t powers[64]; /* [i]: values of at least 2^i and below 2^(i+1); 0 counts with 1 */
};

void gc_histogram_add(struct gc_histogram *histogram, uint64_t ns);
/* Records the value `count` times: a sample that represents so many. */
void gc_histogram_add_many(struct gc_histogram *histogram, uint64_t ns, uint64_t count);
/* For operations too short to time each: 0, or for one call in 31 of a thread, its first included,
 * the number of calls since the last such one, with which to record the time of this call. A prime,
 * so that a program's own rhythm does not meet it. Thread-safe; two counters of one thread are one.
 */
uint64_t gc_histogram_sample(void);
void gc_histogram_read(const struct gc_histogram *histogram, struct gc_latency *latency);

#endif
