#include "core/base/strmap.h"

#include <string.h>
#include <sys/auxv.h>

#define PLACES_MIN 64U

void gc_strmap_init(struct gc_strmap *map)
{
    *map = (struct gc_strmap){0};
    /* 16 random bytes that the kernel gave this process. */
    const unsigned long address = getauxval(AT_RANDOM);
    if (address != 0)
        memcpy(map->key, (const void *)address, sizeof(map->key));
}

static uint64_t rotate(uint64_t word, unsigned bits)
{
    return word << bits | word >> (64 - bits);
}

#define SIP_ROUND(v0, v1, v2, v3)                                                                  \
    do {                                                                                           \
        (v0) += (v1);                                                                              \
        (v1) = rotate((v1), 13) ^ (v0);                                                            \
        (v0) = rotate((v0), 32);                                                                   \
        (v2) += (v3);                                                                              \
        (v3) = rotate((v3), 16) ^ (v2);                                                            \
        (v0) += (v3);                                                                              \
        (v3) = rotate((v3), 21) ^ (v0);                                                            \
        (v2) += (v1);                                                                              \
        (v1) = rotate((v1), 17) ^ (v2);                                                            \
        (v2) = rotate((v2), 32);                                                                   \
    } while (0)

/* SipHash-1-3 (Aumasson, Bernstein). */
uint32_t gc_strmap_hash(const struct gc_strmap *map, const char *text, size_t length)
{
    uint64_t v0 = map->key[0] ^ UINT64_C(0x736f6d6570736575);
    uint64_t v1 = map->key[1] ^ UINT64_C(0x646f72616e646f6d);
    uint64_t v2 = map->key[0] ^ UINT64_C(0x6c7967656e657261);
    uint64_t v3 = map->key[1] ^ UINT64_C(0x7465646279746573);
    size_t at = 0;
    uint64_t word;
    for (; length - at >= sizeof(word); at += sizeof(word)) {
        memcpy(&word, text + at, sizeof(word));
        v3 ^= word;
        SIP_ROUND(v0, v1, v2, v3);
        v0 ^= word;
    }
    word = 0;
    memcpy(&word, text + at, length - at);
    word |= (uint64_t)length << 56;
    v3 ^= word;
    SIP_ROUND(v0, v1, v2, v3);
    v0 ^= word;
    v2 ^= 0xff;
    for (int i = 0; i < 3; i++)
        SIP_ROUND(v0, v1, v2, v3);
    return (uint32_t)(v0 ^ v1 ^ v2 ^ v3);
}

static bool is_text(const char *known, const char *text, size_t length)
{
    return strnlen(known, length + 1) == length && memcmp(known, text, length) == 0;
}

/* The slot of the name, or the empty slot where it belongs. */
static struct gc_strmap_entry *slot_of(const struct gc_strmap *map, const char *text, size_t length,
                                       uint32_t hash)
{
    uint32_t at = hash & (map->slot_count - 1);
    for (;;) {
        struct gc_strmap_entry *slot = &map->slots[at];
        if (slot->text == NULL || (slot->hash == hash && is_text(slot->text, text, length)))
            return slot;
        at = (at + 1) & (map->slot_count - 1);
    }
}

struct gc_strmap_entry *gc_strmap_find_hashed(const struct gc_strmap *map, const char *text,
                                              size_t length, uint32_t hash)
{
    if (map->slot_count == 0)
        return NULL;
    struct gc_strmap_entry *slot = slot_of(map, text, length, hash);
    return slot->text != NULL ? slot : NULL;
}

struct gc_strmap_entry *gc_strmap_find(const struct gc_strmap *map, const char *text, size_t length)
{
    return gc_strmap_find_hashed(map, text, length, gc_strmap_hash(map, text, length));
}

void gc_strmap_prefetch(const struct gc_strmap *map, uint32_t hash)
{
    if (map->slot_count != 0)
        __builtin_prefetch(&map->slots[hash & (map->slot_count - 1)]);
}

void gc_strmap_prefetch_text(const struct gc_strmap *map, uint32_t hash)
{
    if (map->slot_count != 0)
        __builtin_prefetch(map->slots[hash & (map->slot_count - 1)].text);
}

static struct gc_strmap_entry *empty_slot(const struct gc_strmap *map, uint32_t hash)
{
    uint32_t at = hash & (map->slot_count - 1);
    while (map->slots[at].text != NULL)
        at = (at + 1) & (map->slot_count - 1);
    return &map->slots[at];
}

static bool grow_if_full(struct gc_strmap *map, struct gc_region *region)
{
    if (map->slot_count != 0 && map->used + 1 <= map->slot_count / 3 * 2)
        return true;
    if (map->slot_count > UINT32_MAX / 4)
        return false;
    struct gc_strmap larger = *map;
    larger.slot_count = map->slot_count == 0 ? PLACES_MIN : map->slot_count * 4;
    larger.slots = gc_region_alloc(region, (uint64_t)larger.slot_count * sizeof(*larger.slots));
    if (larger.slots == NULL)
        return false;
    for (uint32_t i = 0; i < map->slot_count; i++) {
        const struct gc_strmap_entry *from = &map->slots[i];
        if (from->text != NULL)
            *empty_slot(&larger, from->hash) = *from;
    }
    *map = larger;
    return true;
}

struct gc_strmap_entry *gc_strmap_find_or_add_hashed(struct gc_strmap *map,
                                                     struct gc_region *region, const char *text,
                                                     size_t length, uint32_t hash, bool *added)
{
    *added = false;
    if (!grow_if_full(map, region))
        return NULL;
    struct gc_strmap_entry *slot = slot_of(map, text, length, hash);
    if (slot->text != NULL)
        return slot;
    *slot = (struct gc_strmap_entry){.text = text, .hash = hash};
    map->used++;
    *added = true;
    return slot;
}

struct gc_strmap_entry *gc_strmap_find_or_add(struct gc_strmap *map, struct gc_region *region,
                                              const char *text, size_t length, bool *added)
{
    return gc_strmap_find_or_add_hashed(map, region, text, length,
                                        gc_strmap_hash(map, text, length), added);
}

bool gc_strmap_add(struct gc_strmap *map, struct gc_region *region, const char *text, size_t length,
                   uint32_t value)
{
    bool added;
    struct gc_strmap_entry *slot = gc_strmap_find_or_add(map, region, text, length, &added);
    if (slot != NULL)
        slot->value = value;
    return slot != NULL;
}
