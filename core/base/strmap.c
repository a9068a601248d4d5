#include "core/base/strmap.h"

#include <string.h>
#include <sys/auxv.h>

#define PLACES_MIN 64U

void gc_names_init(struct gc_names *names)
{
    *names = (struct gc_names){0};
    /* 16 bytes that the kernel drew for this process. */
    const unsigned long address = getauxval(AT_RANDOM);
    if (address != 0)
        memcpy(names->key, (const void *)address, sizeof(names->key));
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
uint32_t gc_names_hash(const struct gc_names *names, const char *text, size_t length)
{
    uint64_t v0 = names->key[0] ^ UINT64_C(0x736f6d6570736575);
    uint64_t v1 = names->key[1] ^ UINT64_C(0x646f72616e646f6d);
    uint64_t v2 = names->key[0] ^ UINT64_C(0x6c7967656e657261);
    uint64_t v3 = names->key[1] ^ UINT64_C(0x7465646279746573);
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

/* Where the name is or would be. */
static struct gc_name *place_of(const struct gc_names *names, const char *text, size_t length,
                                uint32_t hash)
{
    uint32_t at = hash & (names->place_count - 1);
    for (;;) {
        struct gc_name *place = &names->places[at];
        if (place->text == NULL || (place->hash == hash && is_text(place->text, text, length)))
            return place;
        at = (at + 1) & (names->place_count - 1);
    }
}

struct gc_name *gc_names_find_hashed(const struct gc_names *names, const char *text, size_t length,
                                     uint32_t hash)
{
    if (names->place_count == 0)
        return NULL;
    struct gc_name *place = place_of(names, text, length, hash);
    return place->text != NULL ? place : NULL;
}

struct gc_name *gc_names_find(const struct gc_names *names, const char *text, size_t length)
{
    return gc_names_find_hashed(names, text, length, gc_names_hash(names, text, length));
}

void gc_names_prefetch(const struct gc_names *names, uint32_t hash)
{
    if (names->place_count != 0)
        __builtin_prefetch(&names->places[hash & (names->place_count - 1)]);
}

void gc_names_prefetch_text(const struct gc_names *names, uint32_t hash)
{
    if (names->place_count != 0)
        __builtin_prefetch(names->places[hash & (names->place_count - 1)].text);
}

static struct gc_name *empty_place(const struct gc_names *names, uint32_t hash)
{
    uint32_t at = hash & (names->place_count - 1);
    while (names->places[at].text != NULL)
        at = (at + 1) & (names->place_count - 1);
    return &names->places[at];
}

static bool make_room(struct gc_names *names, struct gc_region *region)
{
    if (names->place_count != 0 && names->used + 1 <= names->place_count / 3 * 2)
        return true;
    if (names->place_count > UINT32_MAX / 4)
        return false;
    struct gc_names larger = *names;
    larger.place_count = names->place_count == 0 ? PLACES_MIN : names->place_count * 4;
    larger.places = gc_region_alloc(region, (uint64_t)larger.place_count * sizeof(*larger.places));
    if (larger.places == NULL)
        return false;
    for (uint32_t i = 0; i < names->place_count; i++) {
        const struct gc_name *from = &names->places[i];
        if (from->text != NULL)
            *empty_place(&larger, from->hash) = *from;
    }
    *names = larger;
    return true;
}

struct gc_name *gc_names_put_hashed(struct gc_names *names, struct gc_region *region,
                                    const char *text, size_t length, uint32_t hash, bool *added)
{
    *added = false;
    if (!make_room(names, region))
        return NULL;
    struct gc_name *place = place_of(names, text, length, hash);
    if (place->text != NULL)
        return place;
    *place = (struct gc_name){.text = text, .hash = hash};
    names->used++;
    *added = true;
    return place;
}

struct gc_name *gc_names_put(struct gc_names *names, struct gc_region *region, const char *text,
                             size_t length, bool *added)
{
    return gc_names_put_hashed(names, region, text, length, gc_names_hash(names, text, length),
                               added);
}

bool gc_names_add(struct gc_names *names, struct gc_region *region, const char *text, size_t length,
                  uint32_t value)
{
    bool added;
    struct gc_name *place = gc_names_put(names, region, text, length, &added);
    if (place != NULL)
        place->value = value;
    return place != NULL;
}
