/* A size, and a size for each device: the values of GPUCACHE_LIMIT and its kin. A percentage, or an
 * entry for one device, stays symbolic until the device is known. */
#ifndef GC_SIZE_H
#define GC_SIZE_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define GC_SIZE_SPEC_MAX 64

/* "8GiB", "80%", "0=8GiB,GPU-…=50%". An entry without a key is for the devices that no other entry
 * names. */
struct gc_size_spec {
    uint32_t count; /* 0: unset */
    struct gc_size_entry {
        int ordinal;   /* -1: none given */
        char uuid[48]; /* "" : none given */
        bool is_percent;
        uint64_t bytes; /* if !is_percent */
        double percent; /* if is_percent */
    } entries[GC_SIZE_SPEC_MAX];
};

/* "4GiB", "1.5 g", "512": bytes. GC_FORMAT, with nothing written, if the text is no size, is zero,
 * or overflows 64 bits. */
enum gc_status gc_size_parse(const char *text, uint64_t *bytes) GC_CHECKED;

/* A whole GPUCACHE_LIMIT value. GC_FORMAT if the text is none. `per_device` allows keys. */
enum gc_status gc_size_spec_parse(const char *text, bool per_device,
                                  struct gc_size_spec *spec) GC_CHECKED;
/* The same for a value with keys that may be zero: "0", "0MiB", "0%", "0=0". */
enum gc_status gc_size_spec_parse_any(const char *text, struct gc_size_spec *spec) GC_CHECKED;

/* UINT64_MAX if the spec has no entry for this device. A percentage is of total_bytes. An entry by
 * UUID prevails over one by ordinal, that over one without a key. `uuid` may be NULL. */
uint64_t gc_size_spec_resolve(const struct gc_size_spec *spec, int ordinal, const char *uuid,
                              uint64_t total_bytes);

#endif
