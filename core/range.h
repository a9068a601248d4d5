/* What arena.c needs of range.c: the rest of it is in arena.h. */
#ifndef GC_RANGE_H
#define GC_RANGE_H

struct gc_arena;
struct gc_context;

/* The records of an arena that is in no pool; its addresses are the caller's business. */
void gc_range_destroy_arena(struct gc_context *context, struct gc_arena *arena);

#endif
