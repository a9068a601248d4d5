/* Serves a request that has no room on the device from host memory (GPUCACHE_OVERCOMMIT=spill). */
#ifndef GC_ALLOC_SPILL_H
#define GC_ALLOC_SPILL_H

#include "core/backing/segment.h"

/* Whether the option is on and blocks may lie in host memory: in mode cache, without the debug
 * aids. */
bool gc_spill_alloc_is_on(const struct gc_core *core);
/* Says once that the option is without effect, if it is. */
void gc_spill_alloc_check(const struct gc_core *core);
/* Moves older blocks to host memory that make room together. True: there may be room for the
 * request on the device now. */
bool gc_spill_make_room(struct gc_context *context, const struct gc_alloc_spec *spec);
/* GC_OUT_OF_MEMORY: not from host memory either. `spec`: of the request; its bytes become those of
 * the block. No lock may be held. */
enum gc_status gc_spill_alloc(struct gc_context *context, struct gc_alloc_spec *spec,
                              uint64_t *address) GC_CHECKED;

#endif
