/* Parsers of option values, one for each type. Each consumes the whole text or fails. */
#include "core/config/parse.h"

#include "core/config/size.h"
#include "core/config/tenant_rules.h"
#include "core/io/text.h"

#include <string.h>

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

/* The list of GPUCACHE_TENANTS. */
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
        return (rule->minimum == 0 ? gc_size_spec_parse_any(text, member)
                                   : gc_size_spec_parse(text, true, member)) == GC_OK;
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
