/* Ranges of addresses that are kept back; the rest of range.c is declared in change.h. */
#ifndef GC_RANGE_H
#define GC_RANGE_H

#include <stdint.h>

struct gc_context;
struct gc_core;

/* Addresses that stay reserved though nothing is mapped there: see gc_range_release_kept. */
struct gc_range {
    struct gc_range *next;
    uint64_t address;
    uint64_t bytes;
};

/* The driver's context is gone, and its graphs with it: the ranges that were kept back for them are
 * the driver's again. `head`, after all its records were dropped; no lock. */
void gc_range_release_kept(struct gc_context *head);

/* The store of the records; for gc_core_create and gc_core_destroy. */
void gc_ranges_init(struct gc_core *core);
void gc_ranges_fini(struct gc_core *core);

#endif
