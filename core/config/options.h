/* Options: names, types, ranges, defaults and help are declared once, in options.def. Values come
 * from the environment, then from the file that GPUCACHE_CONFIG names; the environment wins. An
 * invalid value or an unknown GPUCACHE_* name is logged in one line with the name, the value, the
 * accepted values and the nearest name.
 *
 * A size that is a percentage or per device stays symbolic (struct gc_size_spec) until a device is
 * known.
 *
 * Everything here is independent of the locale, keeps errno, and takes one block of host memory. */
#ifndef GC_OPTIONS_H
#define GC_OPTIONS_H

#include "core/base/status.h"
#include "core/config/size.h"
#include "core/io/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gc_mode { GC_MODE_CACHE, GC_MODE_TRACK, GC_MODE_OFF };
enum gc_backend { GC_BACKEND_AUTO, GC_BACKEND_VMM, GC_BACKEND_DRIVER, GC_BACKEND_WHOLE };
enum gc_reuse { GC_REUSE_FENCE, GC_REUSE_SYNC };
enum gc_managed { GC_MANAGED_COUNT, GC_MANAGED_LIMIT, GC_MANAGED_DENY };
/* Bits of `overcommit`. */
enum gc_overcommit { GC_OVERCOMMIT_OFF = 1, GC_OVERCOMMIT_SWAP = 2, GC_OVERCOMMIT_SPILL = 4 };
enum gc_stacks { GC_STACKS_OFF, GC_STACKS_LEAKS, GC_STACKS_ALL };
enum gc_admission {
    GC_ADMISSION_OFF,
    GC_ADMISSION_WARN,
    GC_ADMISSION_DENY,
    GC_ADMISSION_EXIT,
    GC_ADMISSION_STRICT,      /* as DENY, and a lower bound does not fit */
    GC_ADMISSION_STRICT_EXIT, /* as EXIT, and a lower bound does not fit */
};

/* Whether a model that does not fit stops the program. */
static inline bool gc_admission_is_closed(enum gc_admission gate)
{
    return gate >= GC_ADMISSION_DENY;
}

static inline bool gc_admission_is_strict(enum gc_admission gate)
{
    return gate >= GC_ADMISSION_STRICT;
}
/* Bits of GPUCACHE_DEBUG. */
enum gc_debug { GC_DEBUG_POISON = 1, GC_DEBUG_GUARD = 2, GC_DEBUG_UAF = 4 };

#define GC_OPTION_NAME_BYTES 64
#define GC_OPTION_PATH_BYTES 4096
#define GC_OPTION_LIST_BYTES 8192
#define GC_OPTION_WORD_BYTES 16
#define GC_OPTION_PRINTED_BYTES 128

#define GC_OPTIONS_WARNING_MAX 16
#define GC_OPTIONS_WARNING_BYTES 256

/* Members by type; see options.def. */
#define GC_OPTION_FIELD_ENUM(field, argument) enum argument field;
#define GC_OPTION_FIELD_SIZES(field, argument) struct gc_size_spec field;
#define GC_OPTION_FIELD_PERCENT(field, argument) double field;
#define GC_OPTION_FIELD_FACTOR(field, argument) double field;
#define GC_OPTION_FIELD_INTEGER(field, argument) uint64_t field;
#define GC_OPTION_FIELD_NAME(field, argument) char field[GC_OPTION_NAME_BYTES];
#define GC_OPTION_FIELD_PATH(field, argument) char field[GC_OPTION_PATH_BYTES];
#define GC_OPTION_FIELD_WORD(field, argument) char field[GC_OPTION_WORD_BYTES];
#define GC_OPTION_FIELD_FLAGS(field, argument) unsigned field;
#define GC_OPTION_FIELD_DIMS(field, argument) char field[GC_OPTION_LIST_BYTES];
#define GC_OPTION_FIELD_TENANTS(field, argument) char field[GC_OPTION_LIST_BYTES];

enum gc_option {
#define GC_OPTION(field, name, ...) GC_OPTION_##name,
#include "core/config/options.def"
#undef GC_OPTION
    GC_OPTION_COUNT
};

struct gc_options {
#define GC_OPTION(field, name, type, argument, ...) GC_OPTION_FIELD_##type(field, argument)
#include "core/config/options.def"
#undef GC_OPTION
    bool refused;      /* CUDA initialisation must return CUDA_ERROR_INVALID_VALUE */
    uint64_t set_mask; /* bit i: option i has a valid value */
    char set_texts[GC_OPTION_COUNT][GC_OPTION_PRINTED_BYTES]; /* the given texts, for messages */
    /* The log lines about options, for the report's "warnings". */
    uint32_t warning_count;
    char warnings[GC_OPTIONS_WARNING_MAX][GC_OPTIONS_WARNING_BYTES];
};

/* Reads everything from `environment` (environ or a test's) and from GPUCACHE_CONFIG or
 * /etc/gpucache.conf. Sets log->level. Invalid values are no failure: they keep their default and,
 * in a CLOSED row, set options->refused, which makes cuInit fail. Returns no error but
 * GC_NO_HOST_MEMORY. In a process with raised privileges (AT_SECURE) the environment and every path
 * are ignored. */
enum gc_status gc_options_load(char *const *environment, struct gc_log *log,
                               struct gc_options **options) GC_CHECKED;
/* Of gc_options_load alone: its memory is not the C library's. */
void gc_options_free(struct gc_options *options);

/* gc_options_load with its surroundings as arguments. */
struct gc_options_source {
    char *const *environment;
    const char
        *default_config; /* read if GPUCACHE_CONFIG is unset and the file exists; may be NULL */
    bool secure;
};
void gc_options_read(const struct gc_options_source *source, struct gc_log *log,
                     struct gc_options *options);

static inline bool gc_options_is_set(const struct gc_options *options, enum gc_option option)
{
    return (options->set_mask >> option & 1) != 0;
}

/* The rows of options.def, for help and documents. */
struct gc_option_row {
    const char *name; /* GPUCACHE_… */
    const char *default_text;
    const char *accepts;
    const char *help;
    bool closed;
    bool gated; /* an invalid value makes cuInit fail where GPUCACHE_GATE is neither off nor warn */
};
const struct gc_option_row *gc_options_get_row(enum gc_option option);

#endif
