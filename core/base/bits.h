/* Arithmetic on device sizes that cannot wrap silently, and a few operations on bits. */
#ifndef GC_BITS_H
#define GC_BITS_H

#include <stdbool.h>
#include <stdint.h>

#define GC_KIB(n) ((uint64_t)(n) << 10)
#define GC_MIB(n) ((uint64_t)(n) << 20)

/* The compiler lays out the code of the hot path for a true condition. */
#define GC_LIKELY(condition) __builtin_expect(!!(condition), 1)

/* False if the sum does not fit; *sum is then unspecified. */
static inline bool gc_add_u64(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool gc_mul_u64(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

/* Rounds up to a multiple of `unit`, a power of two. False if the result does not fit. */
static inline bool gc_round_up_u64(uint64_t value, uint64_t unit, uint64_t *rounded)
{
    uint64_t sum;
    if (!gc_add_u64(value, unit - 1, &sum))
        return false;
    *rounded = sum & ~(unit - 1);
    return true;
}

/* a - b, or 0 where that would wrap. */
static inline uint64_t gc_sub_or_zero_u64(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static inline uint64_t gc_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t gc_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The highest set bit of a word that is not 0. */
static inline unsigned gc_top_bit_u64(uint64_t word)
{
    return 63U - (unsigned)__builtin_clzll(word);
}

#define GC_HASH_FNV1A UINT64_C(0xcbf29ce484222325)

/* A step of FNV-1a, 64 bits, from GC_HASH_FNV1A on: of a byte or a word. */
static inline uint64_t gc_hash_fnv1a(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x100000001b3);
}

/* Spreads a key over all bits (the finaliser of MurmurHash3): invertible, so unequal keys stay
 * unequal. */
static inline uint64_t gc_mix_u64(uint64_t key)
{
    key ^= key >> 33;
    key *= UINT64_C(0xff51afd7ed558ccd);
    key ^= key >> 33;
    key *= UINT64_C(0xc4ceb9fe1a85ec53);
    key ^= key >> 33;
    return key;
}

#endif
