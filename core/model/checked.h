/* Saturating products and sums that remember whether one of them overflowed 64 bits. */
#ifndef GC_CHECKED_H
#define GC_CHECKED_H

#include "core/base/bits.h"
#include "core/base/status.h"
#include "core/model/dtype.h"

struct gc_sum {
    bool overflowed;
};

static inline uint64_t gc_sum_mul(struct gc_sum *sum, uint64_t a, uint64_t b)
{
    uint64_t product;
    if (gc_mul_u64(a, b, &product))
        return product;
    sum->overflowed = true;
    return UINT64_MAX;
}

static inline uint64_t gc_sum_add(struct gc_sum *sum, uint64_t a, uint64_t b)
{
    uint64_t total;
    if (gc_add_u64(a, b, &total))
        return total;
    sum->overflowed = true;
    return UINT64_MAX;
}

/* Bytes of elements of a type with a fixed size. */
static inline uint64_t gc_sum_typed(struct gc_sum *sum, enum gc_dtype dtype, uint64_t elements)
{
    uint64_t bytes;
    if (gc_dtype_bytes(dtype, elements, &bytes))
        return bytes;
    sum->overflowed = true;
    return UINT64_MAX;
}

static inline enum gc_status gc_sum_status(const struct gc_sum *sum)
{
    return sum->overflowed ? GC_OVERFLOW : GC_OK;
}

/* value · part / whole, rounded down; whole from 1. Saturates. */
static inline uint64_t gc_scale_u64(uint64_t value, uint64_t part, uint64_t whole)
{
    const unsigned __int128 scaled = (unsigned __int128)value * part / whole;
    return scaled > UINT64_MAX ? UINT64_MAX : (uint64_t)scaled;
}

static inline uint64_t gc_divide_up_u64(uint64_t value, uint64_t divisor)
{
    return value / divisor + (value % divisor != 0);
}

#endif
