/* Options: names, types, ranges, defaults and help are declared once, in options.def. Values come from
 * the environment, then from the file GPUCACHE_CONFIG names; the environment wins. A bad value or an
 * unknown GPUCACHE_* name gives one line with the name, the value, what is accepted and the nearest name.
 *
 * Sizes that are percentages or per device stay symbolic (struct gc_size_spec) until a device is known. */
#ifndef GC_OPTIONS_H
#define GC_OPTIONS_H

#include "core/log.h"
#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

enum gc_mode { GC_MODE_CACHE, GC_MODE_TRACK, GC_MODE_OFF };
enum gc_backend { GC_BACKEND_AUTO, GC_BACKEND_VMM, GC_BACKEND_DRIVER };
enum gc_reuse { GC_REUSE_FENCE, GC_REUSE_SYNC };
enum gc_stacks { GC_STACKS_OFF, GC_STACKS_LEAKS, GC_STACKS_ALL };
enum gc_gate { GC_GATE_OFF, GC_GATE_WARN, GC_GATE_DENY, GC_GATE_EXIT };

#define GC_SIZE_SPEC_MAX 64

/* "8GiB", "80%", "0=8GiB,GPU-…=50%": an entry without a key is for every device no other entry names. */
struct gc_size_spec {
    uint32_t count; /* 0: unset */
    struct gc_size_entry {
        int ordinal;   /* -1: none given */
        char uuid[48]; /* "" : none given */
        bool is_percent;
        uint64_t bytes;      /* if !is_percent */
        double percent;      /* if is_percent */
    } entries[GC_SIZE_SPEC_MAX];
};

struct gc_options; /* fields generated from options.def; see options_fields.h */

/* Reads everything. `environment` is environ or a test's. Never fails: bad values keep their default, and
 * where the row says so set options->refused, which closes CUDA initialisation. */
enum gc_status gc_options_load(char *const *environment, struct gc_log *log, struct gc_options **options) GC_CHECKED;
void gc_options_free(struct gc_options *options);

/* UINT64_MAX if the spec says nothing about this device. A percentage is of total_bytes. */
uint64_t gc_size_spec_resolve(const struct gc_size_spec *spec, int ordinal, const char *uuid, uint64_t total_bytes);

/* "4GiB", "1.5 g", "512": bytes. GC_FORMAT with nothing written if it is no size, or zero is not
 * allowed and it is zero, or it overflows 64 bits. */
enum gc_status gc_parse_size(const char *text, uint64_t *bytes) GC_CHECKED;

#endif
