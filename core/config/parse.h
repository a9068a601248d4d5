/* Inside the options: one value's text into its member. */
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
    size_t bytes; /* of the member */
};

/* False, with the member as it was, if `text` is no value of this kind. */
bool gc_parse_option(const struct gc_option_rule *rule, const char *text, void *member);

/* The longest text that is taken, without its NUL; SIZE_MAX where only its meaning decides. */
size_t gc_parse_length_max(const struct gc_option_rule *rule);

/* Maps the configuration file and calls `entry` for each KEY=value line, text closed by NUL, blanks
 * around key and value removed; '#' starts a comment line. `bad` is called for a line without '='.
 * GC_IO if it is no regular file, cannot be read or is larger than 64 KiB. The texts live until
 * gc_config_close. */
struct gc_config {
    char *text;
    size_t mapped_bytes;
    bool is_missing; /* there is no such file */
};
struct gc_config_visitor {
    void *argument;
    void (*entry)(void *argument, const char *key, const char *value);
    void (*bad)(void *argument, unsigned line);
};
enum gc_status gc_config_read(const char *path, const struct gc_config_visitor *visitor,
                              struct gc_config *config) GC_CHECKED;
void gc_config_close(struct gc_config *config);

#endif
