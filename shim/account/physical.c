/* Physical memory handles: see physical.h.
 *
 * A release or an unmapping is done in two steps, because the driver may return the number or the
 * address to another thread before the call has returned: before the call the entry is marked as
 * leaving (moved to another key); after it, removed or restored. */
#include "shim/account/physical.h"
#include "shim/account/direct.h"
#include "shim/handles.h"

struct physical {
    uint64_t key; /* of core's record */
    uint64_t references;
    uint64_t mappings;
    enum gc_direct_kind kind;
};
_Static_assert(sizeof(struct physical) <= GC_HANDLE_RECORD_BYTES,
               "a physical handle fits a record");

/* Set in the keys of mappings that the driver is unmapping: no address has this bit. */
#define REMOVING (UINT64_C(1) << 63)

static atomic_bool has_tiles; /* sparse arrays are in use */

static struct physical *find_locked(enum gc_handle_kind kind, uint64_t key)
{
    const struct gc_handle *found = gc_handles_find_locked(kind, key);
    return found ? (struct physical *)(uintptr_t)found->value : NULL;
}

/* No reference or mapping is left, so no other thread can reach the record. */
static bool is_unheld_locked(const struct physical *physical)
{
    return physical->references == 0 && physical->mappings == 0;
}

/* Core's record is removed first: its key is the address of `physical`, which may be reused after
 * this. */
static void drop_record(struct physical *physical)
{
    struct gc_direct direct;

    (void)!gc_direct_untrack(gc_shim.core, physical->kind, physical->key, &direct);
    gc_handles_lock();
    gc_handles_free_record_locked(physical);
    gc_handles_unlock();
}

/* Takes back what gc_physical_add has added. */
static void remove_new(struct physical *physical, uint64_t handle)
{
    gc_handles_lock();
    if (find_locked(GC_HANDLE_PHYSICAL, handle) == physical)
        gc_handles_remove_locked(GC_HANDLE_PHYSICAL, handle, NULL);
    gc_handles_free_record_locked(physical);
    gc_handles_unlock();
}

bool gc_physical_add(struct gc_direct_request *request, enum gc_direct_kind kind, uint64_t handle,
                     uint64_t bytes)
{
    bool is_prepared = gc_handles_prepare();

    gc_handles_lock();
    struct physical *physical = find_locked(GC_HANDLE_PHYSICAL, handle);
    if (physical != NULL && kind == GC_DIRECT_IMPORT) {
        physical->references++; /* this process exported the memory itself */
        gc_handles_unlock();
        return true;
    }
    physical = is_prepared ? gc_handles_alloc_record_locked() : NULL;
    if (physical != NULL) {
        /* Core's key stays with the memory even when the number of its handle is reused. */
        *physical = (struct physical){.key = (uintptr_t)physical, .references = 1, .kind = kind};
        if (!gc_handles_set_locked(GC_HANDLE_PHYSICAL, handle, (uintptr_t)physical, 0)) {
            gc_handles_free_record_locked(physical);
            physical = NULL;
        }
    }
    gc_handles_unlock();
    if (physical == NULL) {
        gc_direct_log_lost(request->api, GC_NO_HOST_MEMORY);
        return request->reserved_bytes == 0;
    }
    if (gc_direct_record(request, kind, (uintptr_t)physical, bytes))
        return true;
    remove_new(physical, handle);
    return false;
}

static bool covers(const struct gc_handle *handle, const void *address)
{
    uint64_t wanted = *(const uint64_t *)address;
    return wanted >= handle->key && wanted - handle->key < handle->extra;
}

void gc_physical_retain(uint64_t handle, uint64_t address)
{
    bool is_prepared = gc_handles_prepare();

    gc_handles_lock();
    const struct gc_handle *mapping = gc_handles_find_locked(GC_HANDLE_MAPPING, address);
    if (mapping == NULL)
        mapping = gc_handles_search_locked(GC_HANDLE_MAPPING, covers, &address);
    if (mapping != NULL && is_prepared) {
        struct physical *physical = (struct physical *)(uintptr_t)mapping->value;
        if (gc_handles_set_locked(GC_HANDLE_PHYSICAL, handle, (uintptr_t)physical, 0))
            physical->references++;
    }
    gc_handles_unlock();
}

/* ---- references ---- */

/* The reference is dropped at once, so that of two releases one is the last; a hold, counted as a
 * mapping, keeps the record until the driver has returned. */
void *gc_physical_release_begin(uint64_t handle)
{
    gc_handles_lock();
    struct physical *physical = find_locked(GC_HANDLE_PHYSICAL, handle);
    if (physical != NULL) {
        physical->mappings++;
        if (--physical->references == 0)
            gc_handles_remove_locked(GC_HANDLE_PHYSICAL, handle, NULL);
    }
    gc_handles_unlock();
    return physical;
}

void gc_physical_release_end(void *record, uint64_t handle, bool is_released)
{
    struct physical *physical = record;

    if (physical == NULL)
        return;
    bool is_prepared = is_released || gc_handles_prepare();
    gc_handles_lock();
    physical->mappings--;
    if (!is_released && is_prepared) {
        physical->references++;
        gc_handles_set_locked(GC_HANDLE_PHYSICAL, handle, (uintptr_t)physical, 0);
    }
    bool is_unheld = is_unheld_locked(physical);
    gc_handles_unlock();
    if (is_unheld)
        drop_record(physical);
}

/* ---- mappings ---- */

static void add_mapping(uint64_t handle, enum gc_handle_kind kind, uint64_t key, uint64_t extra)
{
    bool is_prepared = gc_handles_prepare();

    gc_handles_lock();
    struct physical *physical = find_locked(GC_HANDLE_PHYSICAL, handle);
    if (physical != NULL && is_prepared &&
        gc_handles_set_locked(kind, key, (uintptr_t)physical, extra))
        physical->mappings++;
    gc_handles_unlock();
}

void gc_physical_map(uint64_t handle, uint64_t address, uint64_t bytes)
{
    add_mapping(handle, GC_HANDLE_MAPPING, address, bytes);
}

/* A walk over the mappings that start in a range. Most often they follow each other without a gap:
 * then each is found by its address; else the table is searched. */
struct walk {
    uint64_t address;
    uint64_t bytes;
    uint64_t next; /* expected address of the next mapping */
    bool has_gap;
};

static bool starts_within(const struct gc_handle *handle, const void *argument)
{
    const struct walk *walk = argument;
    return handle->key >= walk->address && handle->key - walk->address < walk->bytes;
}

/* False: no mapping is left. */
static bool next_mapping_locked(struct walk *walk, struct gc_handle *mapping)
{
    const struct gc_handle *found = NULL;

    if (!walk->has_gap && walk->next - walk->address >= walk->bytes)
        return false;
    if (!walk->has_gap)
        found = gc_handles_find_locked(GC_HANDLE_MAPPING, walk->next);
    if (found == NULL) {
        walk->has_gap = true;
        found = gc_handles_search_locked(GC_HANDLE_MAPPING, starts_within, walk);
    }
    if (found == NULL)
        return false;
    *mapping = *found;
    walk->next = mapping->key + mapping->extra;
    return true;
}

/* Moves the mappings of a range to keys with REMOVING, or back. */
static void move_mappings(uint64_t address, uint64_t bytes, bool is_removing)
{
    struct walk walk = {.address = address, .bytes = bytes, .next = address};
    struct gc_handle mapping;

    gc_handles_lock();
    while (next_mapping_locked(&walk, &mapping)) {
        uint64_t key = is_removing ? mapping.key | REMOVING : mapping.key & ~REMOVING;
        gc_handles_remove_locked(GC_HANDLE_MAPPING, mapping.key, NULL);
        gc_handles_set_locked(GC_HANDLE_MAPPING, key, mapping.value, mapping.extra);
    }
    gc_handles_unlock();
}

/* Returns the record that only this mapping held; NULL if others hold it, or there is no such
 * mapping. */
static struct physical *end_mapping_locked(enum gc_handle_kind kind, uint64_t key)
{
    struct gc_handle removed;

    if (!gc_handles_remove_locked(kind, key, &removed))
        return NULL;
    struct physical *physical = (struct physical *)(uintptr_t)removed.value;
    physical->mappings--;
    return is_unheld_locked(physical) ? physical : NULL;
}

void gc_physical_unmap_begin(uint64_t address, uint64_t bytes)
{
    move_mappings(address, bytes, true);
}

void gc_physical_unmap_end(uint64_t address, uint64_t bytes, bool is_unmapped)
{
    struct walk walk = {.address = address | REMOVING, .bytes = bytes, .next = address | REMOVING};
    bool is_found = is_unmapped;

    if (!is_unmapped)
        move_mappings(address | REMOVING, bytes, false);
    while (is_found) {
        struct physical *unheld = NULL;
        struct gc_handle mapping;
        gc_handles_lock();
        is_found = next_mapping_locked(&walk, &mapping);
        if (is_found)
            unheld = end_mapping_locked(GC_HANDLE_MAPPING, mapping.key);
        gc_handles_unlock();
        if (unheld != NULL)
            drop_record(unheld);
    }
}

/* ---- sparse arrays ---- */

void gc_physical_map_tile(uint64_t handle, uint64_t tile, uint64_t array)
{
    gc_physical_unmap_tile(tile); /* the tile may be mapped already */
    atomic_store_explicit(&has_tiles, true, memory_order_relaxed);
    add_mapping(handle, GC_HANDLE_SPARSE, tile, array);
}

void gc_physical_unmap_tile(uint64_t tile)
{
    gc_handles_lock();
    struct physical *unheld = end_mapping_locked(GC_HANDLE_SPARSE, tile);
    gc_handles_unlock();
    if (unheld != NULL)
        drop_record(unheld);
}

static bool is_of_array(const struct gc_handle *handle, const void *array)
{
    return handle->extra == *(const uint64_t *)array;
}

void gc_physical_unmap_array(uint64_t array)
{
    bool is_found = atomic_load_explicit(&has_tiles, memory_order_relaxed);

    while (is_found) {
        struct physical *unheld = NULL;
        gc_handles_lock();
        const struct gc_handle *found =
            gc_handles_search_locked(GC_HANDLE_SPARSE, is_of_array, &array);
        is_found = found != NULL;
        if (is_found)
            unheld = end_mapping_locked(GC_HANDLE_SPARSE, found->key);
        gc_handles_unlock();
        if (unheld != NULL)
            drop_record(unheld);
    }
}
