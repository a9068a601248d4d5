/* Sizes of options. All arithmetic is in integers, so that "1.5GiB" is exact. */
#include "core/config/size.h"

#include "core/io/text.h"

#include <stddef.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t bytes;
};

static const struct unit units[] = {
    {"k", UINT64_C(1) << 10},        {"m", UINT64_C(1) << 20},   {"g", UINT64_C(1) << 30},
    {"t", UINT64_C(1) << 40},        {"ki", UINT64_C(1) << 10},  {"mi", UINT64_C(1) << 20},
    {"gi", UINT64_C(1) << 30},       {"ti", UINT64_C(1) << 40},  {"kib", UINT64_C(1) << 10},
    {"mib", UINT64_C(1) << 20},      {"gib", UINT64_C(1) << 30}, {"tib", UINT64_C(1) << 40},
    {"kb", UINT64_C(1000)},          {"mb", UINT64_C(1000000)},  {"gb", UINT64_C(1000000000)},
    {"tb", UINT64_C(1000000000000)},
};

/* Bytes of the unit; 1 for none; 0 for an unknown one. */
static uint64_t unit_bytes(const char *name)
{
    if (*name == '\0')
        return 1;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (gc_text_equal_nocase(units[i].name, name, strlen(units[i].name) + 1))
            return units[i].bytes;
    }
    return 0;
}

static enum gc_status parse_any(const char *text, uint64_t *bytes)
{
    struct gc_decimal number;
    const char *rest;
    if (!gc_text_decimal(text, &rest, &number))
        return GC_FORMAT;
    if (*rest == ' ' && rest[1] != '\0')
        rest++;
    const uint64_t unit = unit_bytes(rest);
    if (unit == 0 || (unit == 1 && number.fraction != 0))
        return GC_FORMAT;
    const unsigned __int128 total = (unsigned __int128)number.whole * unit +
                                    (unsigned __int128)number.fraction * unit / number.scale;
    if (total > UINT64_MAX)
        return GC_FORMAT;
    *bytes = (uint64_t)total;
    return GC_OK;
}

enum gc_status gc_size_parse(const char *text, uint64_t *bytes)
{
    uint64_t parsed;
    if (parse_any(text, &parsed) != GC_OK || parsed == 0)
        return GC_FORMAT;
    *bytes = parsed;
    return GC_OK;
}

/* "80%": at most 100. */
static bool parse_percent(const char *text, double *percent)
{
    struct gc_decimal number;
    const char *rest;
    if (!gc_text_decimal(text, &rest, &number) || strcmp(rest, "%") != 0)
        return false;
    *percent = gc_text_decimal_value(&number);
    return *percent <= 100;
}

/* GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, or MIG- and the same. */
static bool is_uuid(const char *text, size_t length)
{
    static const char form[] = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    if (length != sizeof(form) - 1 ||
        (memcmp(text, "GPU-", 4) != 0 && memcmp(text, "MIG-", 4) != 0))
        return false;
    for (size_t i = 4; i < length; i++) {
        if (form[i] == '-' ? text[i] != '-' : strchr("0123456789abcdefABCDEF", text[i]) == NULL)
            return false;
    }
    return true;
}

static bool parse_key(const char *text, size_t length, struct gc_size_entry *entry)
{
    uint64_t ordinal;
    if (is_uuid(text, length))
        return gc_text_copy(entry->uuid, sizeof(entry->uuid), text, length);
    if (!gc_text_uint(text, length, &ordinal) || ordinal > 9999)
        return false;
    entry->ordinal = (int)ordinal;
    return true;
}

static bool same_key(const struct gc_size_entry *a, const struct gc_size_entry *b)
{
    return a->ordinal == b->ordinal && gc_text_equal_nocase(a->uuid, b->uuid, sizeof(a->uuid));
}

static bool parse_entry(const char *text, size_t length, bool per_device, bool may_be_zero,
                        struct gc_size_entry *entry)
{
    char value[64];
    *entry = (struct gc_size_entry){.ordinal = -1};
    const char *equals = memchr(text, '=', length);
    if (equals != NULL) {
        const size_t key_length = (size_t)(equals - text);
        if (!per_device || !parse_key(text, key_length, entry))
            return false;
        length -= key_length + 1;
        text = equals + 1;
    }
    if (memchr(text, '\0', length) != NULL || !gc_text_copy(value, sizeof(value), text, length))
        return false;
    entry->is_percent = parse_percent(value, &entry->percent);
    if (!entry->is_percent && parse_any(value, &entry->bytes) != GC_OK)
        return false;
    return may_be_zero || (entry->is_percent ? entry->percent > 0 : entry->bytes > 0);
}

static enum gc_status parse_spec(const char *text, bool per_device, bool may_be_zero,
                                 struct gc_size_spec *spec)
{
    struct gc_size_spec parsed = {.count = 0};
    for (;;) {
        const size_t length = strcspn(text, ",");
        if (parsed.count == GC_SIZE_SPEC_MAX || (parsed.count > 0 && !per_device))
            return GC_FORMAT;
        struct gc_size_entry *entry = &parsed.entries[parsed.count];
        if (!parse_entry(text, length, per_device, may_be_zero, entry))
            return GC_FORMAT;
        for (uint32_t i = 0; i < parsed.count; i++) {
            if (same_key(&parsed.entries[i], entry))
                return GC_FORMAT;
        }
        parsed.count++;
        if (text[length] == '\0')
            break;
        text += length + 1;
    }
    *spec = parsed;
    return GC_OK;
}

enum gc_status gc_size_spec_parse(const char *text, bool per_device, struct gc_size_spec *spec)
{
    return parse_spec(text, per_device, false, spec);
}

enum gc_status gc_size_spec_parse_any(const char *text, struct gc_size_spec *spec)
{
    return parse_spec(text, true, true, spec);
}

static uint64_t entry_bytes(const struct gc_size_entry *entry, uint64_t total_bytes)
{
    if (!entry->is_percent)
        return entry->bytes;
    if (entry->percent >= 100)
        return total_bytes;
    return (uint64_t)((long double)total_bytes * (long double)entry->percent / 100);
}

uint64_t gc_size_spec_resolve(const struct gc_size_spec *spec, int ordinal, const char *uuid,
                              uint64_t total_bytes)
{
    const struct gc_size_entry *by_ordinal = NULL;
    const struct gc_size_entry *for_all = NULL;
    for (uint32_t i = 0; i < spec->count; i++) {
        const struct gc_size_entry *entry = &spec->entries[i];
        if (entry->uuid[0] != '\0') {
            if (uuid != NULL && gc_text_equal_nocase(entry->uuid, uuid, sizeof(entry->uuid)))
                return entry_bytes(entry, total_bytes);
        } else if (entry->ordinal < 0) {
            for_all = entry;
        } else if (entry->ordinal == ordinal) {
            by_ordinal = entry;
        }
    }
    const struct gc_size_entry *found = by_ordinal != NULL ? by_ordinal : for_all;
    return found != NULL ? entry_bytes(found, total_bytes) : UINT64_MAX;
}
