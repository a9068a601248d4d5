/* Memory that the program declares unchanging (weights), and its copies that stay in host memory
 * while it is on the device: swapped out again, it is released without a copy.
 *
 * Structure: an array of ranges of addresses, sorted, searched by bisection. A range belongs to one
 * block, known by its id, and has copies of its whole pages, in order of address. O(log ranges) to
 * find one, O(ranges) to add one.
 *
 * Invariants: ranges do not overlap. A range counts only while the block with its id is live; ids
 * are never reused, so memory that was freed and allocated again never gets an old copy. A copy
 * lies in pages that the range fills, hence is of no other block. A copy is the range's while its
 * memory is resident, and the extent's while that is swapped out.
 *
 * Nothing is there until the first declaration. Thread-safe; no lock may be held but in
 * gc_kept_has. */
#ifndef GC_KEPT_H
#define GC_KEPT_H

#include "core/backing/copy.h"

/* Declares the bytes, all of one live block, unchanging: the caller ensures that their content
 * stays the same, or that it is declared changing before it is written. Several declarations of one
 * block join. GC_NOT_OURS, GC_INVALID_POINTER as gc_lookup_block. GC_OUT_OF_RANGE: the range leaves
 * the block. GC_NO_HOST_MEMORY: for the record. */
enum gc_status gc_kept_declare(struct gc_core *core, uint64_t address, uint64_t bytes) GC_CHECKED;
/* Takes that back, for a part of a declared range or more; its copies are freed. The same errors.
 */
enum gc_status gc_kept_take_back(struct gc_core *core, uint64_t address, uint64_t bytes) GC_CHECKED;
/* As that, of any addresses: their content is lost. */
void gc_kept_forget(struct gc_core *core, uint64_t address, uint64_t bytes);

/* The copies of declared memory in [address, address + bytes), whole pages that are resident and
 * that nobody may write; the caller's now. */
struct gc_copy *gc_kept_take(struct gc_core *core, uint64_t address, uint64_t bytes);
/* Keeps copies, complete ones of memory that is resident again, as far as it is declared. Returns
 * the rest. */
struct gc_copy *gc_kept_keep(struct gc_core *core, struct gc_copy *copies) GC_CHECKED;
/* Whether something is declared; a hint. */
bool gc_kept_is_any(struct gc_core *core);
/* Whether there are copies of all of [address, address + bytes), if its blocks still live. Pools'
 * locks may be held. */
bool gc_kept_has(struct gc_core *core, uint64_t address, uint64_t bytes);

/* Frees copies until `bytes` were freed, or none is left. Returns the bytes freed. */
uint64_t gc_kept_purge(struct gc_core *core, uint64_t bytes);
/* Frees the copies of blocks that are gone. */
void gc_kept_sweep(struct gc_core *core);

/* ---- for core/alloc ---- */

/* Frees the records; the copies go with their store. */
void gc_kept_destroy(struct gc_core *core);

#endif
