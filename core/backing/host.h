/* Host memory for the content of swapped pages. A simple region allocator: chunks, mapped as
 * content needs them, pinned where the platform can (copies run at the link's full speed then), and
 * kept when free until gc_host_trim. A bitmap for each chunk tells its used units; first fit over
 * the chunks.
 *
 * Chunks are charged to the budget of host memory (core/ledger/host_budget.h), which is their
 * bound.
 *
 * A forked child has no chunks. Thread-safe; no lock is held in a driver call. Where a chunk cannot
 * be pinned, plain memory serves, and the log says so once. */
#ifndef GC_HOST_H
#define GC_HOST_H

#include "core/base/host_mem.h"
#include "core/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define GC_HOST_UNIT_BYTES GC_HOST_MEM_HUGE_BYTES
#define GC_HOST_CHUNK_BYTES (UINT64_C(64) << 20)

struct gc_context;
struct gc_core;
struct gc_host_chunk;

struct gc_host_piece {
    uint8_t *memory; /* aligned to GC_HOST_UNIT_BYTES; its content is undefined at first */
    uint64_t bytes;
    struct gc_host_chunk *chunk;
};

/* A piece of at most `bytes`, a multiple of the page size of the worker's device; so is the piece.
 * It may be shorter: the rest needs more calls. False: the bound is reached, or the kernel has no
 * memory. `worker`: a context in which memory can be pinned. */
bool gc_host_take(struct gc_context *worker, uint64_t bytes,
                  struct gc_host_piece *piece) GC_CHECKED;
/* Also of a part of a piece that begins and ends at whole units, or at the piece's end. */
void gc_host_give(struct gc_core *core, const struct gc_host_piece *piece);
/* Unpins and unmaps the chunks without content; returns their bytes. A chunk that the driver does
 * not unpin stays. */
uint64_t gc_host_trim(struct gc_core *core);
/* Bytes of the chunks held now, with content or without. */
uint64_t gc_host_bytes(const struct gc_core *core);
/* Whether what is taken from now on may use the reserve of the budget: memory leaves so that other
 * memory can come back. */
void gc_host_set_exchange(struct gc_core *core, bool is_exchange);
/* Says once that the bound is reached. */
void gc_host_log_full(struct gc_core *core);
/* ---- for core/alloc ---- */

enum gc_status gc_host_create(struct gc_core *core) GC_CHECKED;
/* Frees host memory only, makes no driver call. */
void gc_host_destroy(struct gc_core *core);

#endif
