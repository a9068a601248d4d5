/* The keys of a JSON report, each read by its name and type. A missing key of the schema and a key
 * of another type fail the reading; keys after that read as empty. */
#ifndef GC_REPORT_KEYS_H
#define GC_REPORT_KEYS_H

#include "core/io/emitter.h"
#include "core/report/snapshot.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct report_loaded;

/* The state of one reading. */
struct report_loader {
    struct report_loaded *loaded;
    json_t *api_numbers; /* name → number */
    bool failed;
    char *why;
    size_t why_bytes;
};

void report_fail(struct report_loader *loader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* NULL: the reading has failed. */
json_t *report_get(struct report_loader *loader, const json_t *object, const char *key,
                   json_type type);
uint64_t report_get_uint(struct report_loader *loader, const json_t *object, const char *key);
int report_get_int(struct report_loader *loader, const json_t *object, const char *key);
const char *report_get_string(struct report_loader *loader, const json_t *object, const char *key);
struct gc_latency report_get_latency(struct report_loader *loader, const json_t *object,
                                     const char *key);
/* A number that earlier versions of the library did not write: an absent key means 0, and is
 * added to loaded->absent. */
uint64_t report_find_uint(struct report_loader *loader, const json_t *object, const char *key);
/* Reads the members of `object` into a record, by the table that wrote them; GC_FIGURE_PART is the
 * caller's. `required`: the keys of the schema's first version, up to a NULL; NULL: all of the
 * table. Another key may be absent: 0, "" or no limit, and added to loaded->absent. */
void report_get_figures(struct report_loader *loader, const json_t *object,
                        const struct gc_figures *figures, void *record,
                        const char *const *required);
/* As gc_text_printable does, into `size` bytes. */
void report_copy_string(struct report_loader *loader, const json_t *object, const char *key,
                        char *to, size_t size);

/* ---- the parts of a report ---- */

/* Devices, their leaks and sites, entry points, warnings. */
void report_load_devices(struct report_loader *loader, const json_t *root);

#endif
