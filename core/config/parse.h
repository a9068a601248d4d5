/* Internal to the options: parses one value's text into its member. */
#ifndef GC_OPTIONS_PARSE_H
#define GC_OPTIONS_PARSE_H

#include "core/config/options.h"

enum gc_option_type {
    GC_OPTION_ENUM,
    GC_OPTION_SIZES,
    GC_OPTION_PERCENT,
    GC_OPTION_FACTOR,
    GC_OPTION_INTEGER,
    GC_OPTION_TEXT_NAME,
    GC_OPTION_PATH,
    GC_OPTION_WORD,
    GC_OPTION_FLAGS,
    GC_OPTION_LIST_DIMS,
    GC_OPTION_LIST_TENANTS,
};

struct gc_option_rule {
    enum gc_option_type type;
    uint64_t minimum;
    uint64_t maximum;
    const char *accepts;
    size_t bytes; /* size of the member */
};

/* False, with the member unchanged, if `text` is no value of this kind. */
bool gc_parse_option(const struct gc_option_rule *rule, const char *text, void *member);

/* The longest accepted text, without its NUL; SIZE_MAX if the length is not bounded. */
size_t gc_parse_length_max(const struct gc_option_rule *rule);

#endif
