#include "core/formats/names.h"

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

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

/* SipHash-1-3 (Aumasson, Bernstein). */
static uint32_t hash_of(const struct gc_names *names, const char *text, size_t length)
{
    uint64_t v[4] = {
        names->key[0] ^ UINT64_C(0x736f6d6570736575), names->key[1] ^ UINT64_C(0x646f72616e646f6d),
        names->key[0] ^ UINT64_C(0x6c7967656e657261), names->key[1] ^ UINT64_C(0x7465646279746573)};
    size_t at = 0;
    uint64_t word;
    for (; length - at >= sizeof(word); at += sizeof(word)) {
        memcpy(&word, text + at, sizeof(word));
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = 0;
    memcpy(&word, text + at, length - at);
    word |= (uint64_t)length << 56;
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return (uint32_t)(v[0] ^ v[1] ^ v[2] ^ v[3]);
}

/* Where the name is or would be. */
static struct gc_name *place_of(const struct gc_names *names, const char *text, size_t length,
                                uint32_t hash)
{
    uint32_t at = hash & (names->place_count - 1);
    for (;;) {
        struct gc_name *place = &names->places[at];
        if (place->text == NULL || (place->hash == hash && place->length == length &&
                                    memcmp(place->text, text, length) == 0))
            return place;
        at = (at + 1) & (names->place_count - 1);
    }
}

struct gc_name *gc_names_find(const struct gc_names *names, const char *text, size_t length)
{
    if (names->place_count == 0 || length > UINT32_MAX)
        return NULL;
    struct gc_name *place = place_of(names, text, length, hash_of(names, text, length));
    return place->text != NULL ? place : NULL;
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
            *place_of(&larger, from->text, from->length, from->hash) = *from;
    }
    *names = larger;
    return true;
}

bool gc_names_add(struct gc_names *names, struct gc_region *region, const char *text, size_t length,
                  uint32_t value)
{
    if (length > UINT32_MAX || !make_room(names, region))
        return false;
    const uint32_t hash = hash_of(names, text, length);
    *place_of(names, text, length, hash) =
        (struct gc_name){.text = text, .length = (uint32_t)length, .hash = hash, .value = value};
    names->used++;
    return true;
}
