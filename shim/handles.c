/* Handle table: see handles.h. The table doubles at half load; slots in reserve for callers between
 * their prepare and their set keep a set from ever growing the table under the lock. */
#include "shim/handles.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define INITIAL_SLOTS 1024u
#define RESERVED_SLOTS 128u
#define CHUNK_BYTES 65536u

struct free_record {
    struct free_record *next;
};

static struct {
    pthread_mutex_t
        lock; /* guards everything below; a leaf: nothing is locked or called under it */
    struct gc_handle *slots;
    size_t slot_count; /* a power of two */
    size_t used;
    struct free_record *records;
    char *fresh, *fresh_end; /* records that were never used */
    size_t record_count;     /* of both */
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t hash_of(enum gc_handle_kind kind, uint64_t key)
{
    uint64_t hash = (key ^ ((uint64_t)kind << 56)) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(hash ^ (hash >> 29));
}

static void *map_pages(size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

void gc_handles_lock(void)
{
    pthread_mutex_lock(&table.lock);
}

void gc_handles_unlock(void)
{
    pthread_mutex_unlock(&table.lock);
}

static void insert_slot(struct gc_handle *slots, size_t count, const struct gc_handle *handle)
{
    size_t i = hash_of(handle->kind, handle->key) & (count - 1);

    while (slots[i].kind != GC_HANDLE_NONE)
        i = (i + 1) & (count - 1);
    slots[i] = *handle;
}

static bool is_crowded_locked(void)
{
    return (table.used + RESERVED_SLOTS) * 2 > table.slot_count;
}

/* Moves the table into `slots` if it is still too small; returns the memory to unmap. */
static void *grow_locked(struct gc_handle *slots, size_t count, size_t *unmap_bytes)
{
    struct gc_handle *old = table.slots;

    if (!is_crowded_locked() || count <= table.slot_count) {
        *unmap_bytes = count * sizeof(*slots);
        return slots;
    }
    for (size_t i = 0; i < table.slot_count; i++)
        if (old[i].kind != GC_HANDLE_NONE)
            insert_slot(slots, count, &old[i]);
    *unmap_bytes = table.slot_count * sizeof(*slots);
    table.slots = slots;
    table.slot_count = count;
    return old;
}

static bool prepare_slots(void)
{
    gc_handles_lock();
    bool is_crowded = is_crowded_locked();
    size_t count = table.slot_count ? table.slot_count * 2 : INITIAL_SLOTS;
    gc_handles_unlock();
    if (!is_crowded)
        return true;

    struct gc_handle *slots = map_pages(count * sizeof(*slots));
    if (slots == NULL)
        return false;
    size_t unmap_bytes;
    gc_handles_lock();
    void *unmap = grow_locked(slots, count, &unmap_bytes);
    gc_handles_unlock();
    if (unmap != NULL)
        munmap(unmap, unmap_bytes);
    return true;
}

static bool prepare_records(void)
{
    gc_handles_lock();
    bool is_short = table.record_count < RESERVED_SLOTS;
    gc_handles_unlock();
    if (!is_short)
        return true;

    char *chunk = map_pages(CHUNK_BYTES);
    if (chunk == NULL)
        return false;
    gc_handles_lock();
    for (; table.fresh != table.fresh_end; table.fresh += GC_HANDLE_RECORD_BYTES) {
        table.record_count--;
        gc_handles_free_record_locked(table.fresh);
    }
    table.fresh = chunk;
    table.fresh_end = chunk + CHUNK_BYTES;
    table.record_count += CHUNK_BYTES / GC_HANDLE_RECORD_BYTES;
    gc_handles_unlock();
    return true;
}

bool gc_handles_prepare(void)
{
    return prepare_slots() && prepare_records();
}

struct gc_handle *gc_handles_find_locked(enum gc_handle_kind kind, uint64_t key)
{
    if (table.slot_count == 0)
        return NULL;
    size_t mask = table.slot_count - 1;

    for (size_t i = hash_of(kind, key) & mask; table.slots[i].kind != GC_HANDLE_NONE;
         i = (i + 1) & mask)
        if (table.slots[i].kind == kind && table.slots[i].key == key)
            return &table.slots[i];
    return NULL;
}

bool gc_handles_set_locked(enum gc_handle_kind kind, uint64_t key, uint64_t value, uint64_t extra)
{
    struct gc_handle handle = {.key = key, .value = value, .extra = extra, .kind = kind};
    struct gc_handle *found = gc_handles_find_locked(kind, key);

    if (found != NULL) {
        *found = handle;
        return true;
    }
    if (table.used + 1 >= table.slot_count)
        return false;
    insert_slot(table.slots, table.slot_count, &handle);
    table.used++;
    return true;
}

/* Closes the gap at `gap` by shifting back the entries that probing would no longer reach. */
static void close_gap_locked(size_t gap)
{
    size_t mask = table.slot_count - 1;

    for (size_t i = (gap + 1) & mask; table.slots[i].kind != GC_HANDLE_NONE; i = (i + 1) & mask) {
        size_t home = hash_of(table.slots[i].kind, table.slots[i].key) & mask;
        if (((i - home) & mask) >= ((i - gap) & mask)) {
            table.slots[gap] = table.slots[i];
            gap = i;
        }
    }
    memset(&table.slots[gap], 0, sizeof(table.slots[gap]));
}

bool gc_handles_remove_locked(enum gc_handle_kind kind, uint64_t key, struct gc_handle *removed)
{
    struct gc_handle *found = gc_handles_find_locked(kind, key);

    if (found == NULL)
        return false;
    if (removed != NULL)
        *removed = *found;
    close_gap_locked((size_t)(found - table.slots));
    table.used--;
    return true;
}

struct gc_handle *gc_handles_search_locked(enum gc_handle_kind kind,
                                           bool (*matches)(const struct gc_handle *, const void *),
                                           const void *argument)
{
    for (size_t i = 0; i < table.slot_count; i++)
        if (table.slots[i].kind == kind && matches(&table.slots[i], argument))
            return &table.slots[i];
    return NULL;
}

size_t gc_handles_collect_locked(enum gc_handle_kind kind, uint64_t value, uint64_t *keys,
                                 size_t max)
{
    size_t count = 0;

    for (size_t i = 0; i < table.slot_count; i++) {
        if (table.slots[i].kind != kind || table.slots[i].value != value)
            continue;
        if (count < max)
            keys[count] = table.slots[i].key;
        count++;
    }
    return count;
}

void *gc_handles_alloc_record_locked(void)
{
    struct free_record *record = table.records;

    if (record != NULL) {
        table.records = record->next;
    } else if (table.fresh != table.fresh_end) {
        record = (struct free_record *)table.fresh;
        table.fresh += GC_HANDLE_RECORD_BYTES;
    } else {
        return NULL;
    }
    table.record_count--;
    memset(record, 0, GC_HANDLE_RECORD_BYTES);
    return record;
}

void gc_handles_free_record_locked(void *record)
{
    struct free_record *free_record = record;

    free_record->next = table.records;
    table.records = free_record;
    table.record_count++;
}

bool gc_handles_set(enum gc_handle_kind kind, uint64_t key, uint64_t value, uint64_t extra)
{
    if (!gc_handles_prepare())
        return false;
    gc_handles_lock();
    bool is_put = gc_handles_set_locked(kind, key, value, extra);
    gc_handles_unlock();
    return is_put;
}

bool gc_handles_get(enum gc_handle_kind kind, uint64_t key, struct gc_handle *found)
{
    gc_handles_lock();
    const struct gc_handle *handle = gc_handles_find_locked(kind, key);
    if (handle != NULL)
        *found = *handle;
    gc_handles_unlock();
    return handle != NULL;
}

bool gc_handles_remove(enum gc_handle_kind kind, uint64_t key, struct gc_handle *removed)
{
    gc_handles_lock();
    bool is_removed = gc_handles_remove_locked(kind, key, removed);
    gc_handles_unlock();
    return is_removed;
}
