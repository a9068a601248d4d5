#include "core/base/histogram.h"

#include "core/base/bits.h"

#define SUB_COUNT (UINT64_C(1) << GC_HISTOGRAM_SUB_BITS)

/* Values below 2 * SUB_COUNT have one bucket each. Above, the position of the top bit and the
 * GC_HISTOGRAM_SUB_BITS bits below it select the bucket. */
static unsigned bucket_of(uint64_t ns)
{
    if (ns < SUB_COUNT)
        return (unsigned)ns;
    const unsigned top_bit = 63U - (unsigned)__builtin_clzll(ns);
    const unsigned shift = top_bit - GC_HISTOGRAM_SUB_BITS;
    return ((shift + 1) << GC_HISTOGRAM_SUB_BITS) + (unsigned)((ns >> shift) & (SUB_COUNT - 1));
}

/* The largest value of the bucket. */
static uint64_t bucket_end(unsigned bucket)
{
    if (bucket < SUB_COUNT)
        return bucket;
    const unsigned shift = (bucket >> GC_HISTOGRAM_SUB_BITS) - 1;
    const uint64_t first = (SUB_COUNT | (bucket & (SUB_COUNT - 1))) << shift;
    return first + ((UINT64_C(1) << shift) - 1);
}

void gc_histogram_add(struct gc_histogram *histogram, uint64_t ns)
{
    gc_histogram_add_many(histogram, ns, 1);
}

void gc_histogram_add_many(struct gc_histogram *histogram, uint64_t ns, uint64_t count)
{
    atomic_fetch_add_explicit(&histogram->counts[bucket_of(ns)], count, memory_order_relaxed);
    uint64_t max = atomic_load_explicit(&histogram->max, memory_order_relaxed);
    while (ns > max && !atomic_compare_exchange_weak_explicit(
                           &histogram->max, &max, ns, memory_order_relaxed, memory_order_relaxed))
        ;
}

#define SAMPLE_EVERY 31

uint64_t gc_histogram_sample(void)
{
    static __thread struct {
        uint32_t until;
        uint32_t calls;
    } sample __attribute__((tls_model("initial-exec")));
    if (sample.until-- != 0)
        return 0;
    const uint64_t calls = sample.calls == 0 ? 1 : sample.calls;
    sample.calls = SAMPLE_EVERY;
    sample.until = SAMPLE_EVERY - 1;
    return calls;
}

/* The smallest bucket end that is no less than `rank` of the recorded values. */
static uint64_t value_at(const uint64_t *counts, uint64_t rank)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < GC_HISTOGRAM_BUCKETS; i++) {
        seen += counts[i];
        if (seen >= rank)
            return bucket_end(i);
    }
    return UINT64_MAX;
}

void gc_histogram_read(const struct gc_histogram *histogram, struct gc_latency *latency)
{
    uint64_t counts[GC_HISTOGRAM_BUCKETS];
    uint64_t total = 0;
    for (unsigned i = 0; i < GC_HISTOGRAM_BUCKETS; i++) {
        counts[i] = atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
        total += counts[i];
    }
    *latency = (struct gc_latency){.count = total};
    if (total == 0)
        return;
    for (unsigned i = 0; i < GC_HISTOGRAM_BUCKETS; i++)
        latency->powers[63U - (unsigned)__builtin_clzll(bucket_end(i) | 1)] += counts[i];
    latency->max = atomic_load_explicit(&histogram->max, memory_order_relaxed);
    latency->p50 = gc_min_u64(value_at(counts, total - total / 2), latency->max);
    latency->p99 = gc_min_u64(value_at(counts, total - total / 100), latency->max);
}
