#include "core/base/slab.h"

#include "core/base/assert.h"

#include <stddef.h>

struct gc_slab_link {
    struct gc_slab_link *next;
};

static void init(struct gc_slab *slab, struct gc_host_mem *host, uint32_t record_bytes,
                 uint32_t chunk_bytes)
{
    GC_ASSERT(record_bytes >= sizeof(struct gc_slab_link) && record_bytes % 8 == 0);
    /* The first record's memory has the link. */
    while (chunk_bytes < 2 * record_bytes)
        chunk_bytes *= 2;
    *slab =
        (struct gc_slab){.host = host, .record_bytes = record_bytes, .chunk_bytes = chunk_bytes};
    gc_lock_init(&slab->lock, GC_RANK_SLAB);
}

void gc_slab_init(struct gc_slab *slab, struct gc_host_mem *host, uint32_t record_bytes)
{
    init(slab, host, record_bytes, GC_SLAB_CHUNK_BYTES);
}

void gc_slab_init_small(struct gc_slab *slab, struct gc_host_mem *host, uint32_t record_bytes)
{
    init(slab, host, record_bytes, GC_SLAB_SMALL_CHUNK_BYTES);
}

void gc_slab_fini(struct gc_slab *slab)
{
    while (slab->chunks != NULL) {
        struct gc_slab_link *chunk = slab->chunks;
        slab->chunks = chunk->next;
        gc_host_mem_unmap(slab->host, chunk, slab->chunk_bytes);
    }
    slab->free = NULL;
    slab->fresh = slab->fresh_end = NULL;
}

static void push_locked(struct gc_slab *slab, void *record)
{
    struct gc_slab_link *link = record;
    link->next = slab->free;
    slab->free = link;
}

static void *pop_locked(struct gc_slab *slab)
{
    struct gc_slab_link *link = slab->free;
    if (link != NULL) {
        slab->free = link->next;
    } else if (slab->fresh != slab->fresh_end) {
        link = (struct gc_slab_link *)slab->fresh;
        slab->fresh += slab->record_bytes;
    }
    return link;
}

/* Adds a chunk. The first record's memory holds the link between chunks. */
static void *grow(struct gc_slab *slab)
{
    char *chunk = gc_host_mem_map(slab->host, slab->chunk_bytes);
    if (chunk == NULL)
        return NULL;
    gc_lock_acquire(&slab->lock);
    struct gc_slab_link *link = (struct gc_slab_link *)chunk;
    link->next = slab->chunks;
    slab->chunks = link;
    for (; slab->fresh != slab->fresh_end; slab->fresh += slab->record_bytes)
        push_locked(slab, slab->fresh); /* another thread has added a chunk meanwhile */
    slab->fresh = chunk + slab->record_bytes;
    slab->fresh_end = chunk + slab->chunk_bytes / slab->record_bytes * (uint64_t)slab->record_bytes;
    void *record = pop_locked(slab);
    gc_lock_release(&slab->lock);
    return record;
}

void *gc_slab_try_alloc(struct gc_slab *slab)
{
    gc_lock_acquire(&slab->lock);
    void *record = pop_locked(slab);
    gc_lock_release(&slab->lock);
    return record;
}

void *gc_slab_alloc(struct gc_slab *slab)
{
    void *record = gc_slab_try_alloc(slab);
    return record != NULL ? record : grow(slab);
}

bool gc_slab_grow(struct gc_slab *slab)
{
    void *record = grow(slab);
    if (record != NULL)
        gc_slab_free(slab, record);
    return record != NULL;
}

void gc_slab_free(struct gc_slab *slab, void *record)
{
    gc_lock_acquire(&slab->lock);
    push_locked(slab, record);
    gc_lock_release(&slab->lock);
}
