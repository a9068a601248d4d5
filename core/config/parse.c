/* Parsers of option values, one a type. Each takes the whole text or refuses it. */
#include "core/config/parse.h"

#include "core/config/tenant_rules.h"
#include "core/io/text.h"

#include <string.h>

/* ---- sizes: "4GiB", "80%", "0=8GiB,GPU-…=50%"; all in integers, so that "1.5GiB" is exact ---- */

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

enum gc_status gc_parse_size(const char *text, uint64_t *bytes)
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
    if (total == 0 || total > UINT64_MAX)
        return GC_FORMAT;
    *bytes = (uint64_t)total;
    return GC_OK;
}

/* "80%": more than 0, at most 100. */
static bool parse_percent(const char *text, double *percent)
{
    struct gc_decimal number;
    const char *rest;
    if (!gc_text_decimal(text, &rest, &number) || strcmp(rest, "%") != 0)
        return false;
    *percent = gc_text_decimal_value(&number);
    return *percent > 0 && *percent <= 100;
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

static bool parse_entry(const char *text, size_t length, bool per_device,
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
    return entry->is_percent || gc_parse_size(value, &entry->bytes) == GC_OK;
}

enum gc_status gc_parse_size_spec(const char *text, bool per_device, struct gc_size_spec *spec)
{
    struct gc_size_spec parsed = {.count = 0};
    for (;;) {
        const size_t length = strcspn(text, ",");
        if (parsed.count == GC_SIZE_SPEC_MAX || (parsed.count > 0 && !per_device))
            return GC_FORMAT;
        struct gc_size_entry *entry = &parsed.entries[parsed.count];
        if (!parse_entry(text, length, per_device, entry))
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

/* ---- the other types ---- */

_Static_assert(sizeof(enum gc_mode) == sizeof(unsigned) &&
                   sizeof(enum gc_log_level) == sizeof(unsigned),
               "an ENUM member is stored as unsigned");

static bool parse_word(const char *words, const char *text, unsigned *index)
{
    const int found = gc_text_find_word(words, text, strlen(text));
    if (found < 0)
        return false;
    *index = (unsigned)found;
    return true;
}

static bool parse_flags(const char *words, const char *text, unsigned *flags)
{
    unsigned result = 0;
    for (;;) {
        const size_t length = strcspn(text, ",");
        const int found = gc_text_find_word(words, text, length);
        if (found < 0)
            return false;
        result |= 1U << found;
        if (text[length] == '\0')
            break;
        text += length + 1;
    }
    *flags = result;
    return true;
}

static bool parse_number(const struct gc_option_rule *rule, const char *unit, const char *text,
                         double *value)
{
    struct gc_decimal number;
    const char *rest;
    if (!gc_text_decimal(text, &rest, &number) || strcmp(rest, unit) != 0)
        return false;
    const double parsed = gc_text_decimal_value(&number);
    if (parsed < (double)rule->minimum || parsed > (double)rule->maximum)
        return false;
    *value = parsed;
    return true;
}

static bool parse_integer(const struct gc_option_rule *rule, const char *text, uint64_t *value)
{
    uint64_t parsed;
    if (!gc_text_uint(text, strlen(text), &parsed) || parsed < rule->minimum ||
        parsed > rule->maximum)
        return false;
    *value = parsed;
    return true;
}

/* name=N */
static bool is_dim(const char *text, size_t length)
{
    const char *equals = memchr(text, '=', length);
    uint64_t value;
    if (equals == NULL || equals == text)
        return false;
    const size_t name_length = (size_t)(equals - text);
    return gc_text_uint(equals + 1, length - name_length - 1, &value) && value > 0;
}

/* Of GPUCACHE_TENANTS. */
static bool is_rules(const char *text)
{
    struct gc_tenant_rules rules;
    return gc_tenant_rules_parse(text, &rules) == GC_OK;
}

static bool is_list(const char *text, bool (*is_item)(const char *, size_t))
{
    for (;;) {
        const size_t length = strcspn(text, ",");
        if (!is_item(text, length))
            return false;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
}

size_t gc_parse_length_max(const struct gc_option_rule *rule)
{
    switch (rule->type) {
    case GC_OPTION_TEXT_NAME:
    case GC_OPTION_PATH:
    case GC_OPTION_LIST_DIMS:
    case GC_OPTION_LIST_TENANTS:
        return rule->bytes - 1;
    default:
        return SIZE_MAX;
    }
}

bool gc_parse_option(const struct gc_option_rule *rule, const char *text, void *member)
{
    const size_t length = strlen(text);
    unsigned word;
    if (length == 0 || length > gc_parse_length_max(rule))
        return false;
    switch (rule->type) {
    case GC_OPTION_ENUM:
        return parse_word(rule->accepts, text, member);
    case GC_OPTION_FLAGS:
        return parse_flags(rule->accepts, text, member);
    case GC_OPTION_SIZES:
        return gc_parse_size_spec(text, true, member) == GC_OK;
    case GC_OPTION_PERCENT:
        return parse_number(rule, "%", text, member);
    case GC_OPTION_FACTOR:
        return parse_number(rule, "", text, member);
    case GC_OPTION_INTEGER:
        return parse_integer(rule, text, member);
    case GC_OPTION_WORD:
        return parse_word(rule->accepts, text, &word) &&
               gc_text_copy(member, rule->bytes, text, length);
    case GC_OPTION_TEXT_NAME:
        return gc_tenant_rules_is_name(text, length) &&
               gc_text_copy(member, rule->bytes, text, length);
    case GC_OPTION_PATH:
        return gc_text_copy(member, rule->bytes, text, length);
    case GC_OPTION_LIST_DIMS:
        return is_list(text, is_dim) && gc_text_copy(member, rule->bytes, text, length);
    case GC_OPTION_LIST_TENANTS:
        return is_rules(text) && gc_text_copy(member, rule->bytes, text, length);
    }
    return false;
}
