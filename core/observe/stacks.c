/* Stacks and the texts of Python's frames are interned. A stack's byte string is its device and its
 * frames, so each device has call sites of its own. The counters of a string are the site's
 * figures. */
#include "core/observe/stacks.h"

#include "core/base/bits.h"
#include "core/base/intern.h"
#include "core/observe/stack_map.h"
#include "core/observe/unwind.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define STACK_SLOTS (1U << 17)
#define STACK_ROOM_BYTES (UINT64_C(64) << 20)
#define TEXT_SLOTS (1U << 17)
#define TEXT_ROOM_BYTES (UINT64_C(32) << 20)
#define TEXT_MAX 400

enum { SITE_COUNT, SITE_BYTES, SITE_LIVE_COUNT, SITE_LIVE_BYTES, SITE_PEAK, SITE_SCAN };
_Static_assert(SITE_SCAN < GC_INTERN_COUNTERS, "a counter for each figure");

/* The byte string of a stack. */
struct record {
    int32_t ordinal;
    uint32_t frame_count;
    uint64_t object_key; /* gc_objects_key of the frames */
    uint64_t frames[GC_STACK_FRAMES_MAX];
};

struct gc_stack_table {
    struct gc_host_mem *host;
    struct gc_intern stacks; /* without the device: the numbers that gc_stacks_capture returns */
    struct gc_intern sites;
    struct gc_intern texts;
    struct gc_unwind_scope scope;
    _Atomic uint64_t lost;
    struct gc_stack_map places;
};

static uint32_t record_bytes(const struct record *record)
{
    return (uint32_t)(offsetof(struct record, frames) +
                      record->frame_count * sizeof(record->frames[0]));
}

enum gc_status gc_stacks_create(struct gc_host_mem *host, struct gc_stack_table **created)
{
    struct gc_stack_table *stacks = gc_host_mem_map(host, sizeof(*stacks));
    if (stacks == NULL)
        return GC_NO_HOST_MEMORY;
    stacks->host = host;
    const bool done =
        gc_intern_init(&stacks->stacks, host, STACK_SLOTS, STACK_ROOM_BYTES) == GC_OK &&
        gc_intern_init(&stacks->sites, host, STACK_SLOTS, STACK_ROOM_BYTES) == GC_OK &&
        gc_intern_init(&stacks->texts, host, TEXT_SLOTS, TEXT_ROOM_BYTES) == GC_OK &&
        gc_stack_map_init(&stacks->places, host) == GC_OK;
    if (!done) {
        gc_stacks_destroy(stacks);
        return GC_NO_HOST_MEMORY;
    }
    gc_unwind_scope_init(&stacks->scope);
    *created = stacks;
    return GC_OK;
}

void gc_stacks_destroy(struct gc_stack_table *stacks)
{
    if (stacks == NULL)
        return;
    gc_stack_map_fini(&stacks->places);
    gc_intern_fini(&stacks->stacks);
    gc_intern_fini(&stacks->sites);
    gc_intern_fini(&stacks->texts);
    gc_host_mem_unmap(stacks->host, stacks, sizeof(*stacks));
}

/* ---- capture ---- */

/* Interns both texts, each ending with NUL, one after the other. */
static uint32_t intern_text(void *argument, const char *function, const char *file)
{
    struct gc_stack_table *stacks = argument;
    char text[TEXT_MAX];
    const size_t function_length = strnlen(function, TEXT_MAX / 4);
    /* A long path keeps its end, which is more specific. */
    const size_t room = TEXT_MAX - function_length - 2;
    const size_t whole = strlen(file);
    const size_t skipped = whole > room ? whole - room : 0;
    memcpy(text, function, function_length);
    text[function_length] = '\0';
    memcpy(text + function_length + 1, file + skipped, whole - skipped + 1);
    return gc_intern_add(&stacks->texts, text, (uint32_t)(function_length + 2 + whole - skipped));
}

uint32_t gc_stacks_capture(struct gc_stack_table *stacks)
{
    struct record record = {.ordinal = -1};
    record.frame_count = gc_unwind_frames(&stacks->scope, stacks->host, record.frames,
                                          GC_STACK_FRAMES_MAX, intern_text, stacks);
    if (record.frame_count == 0)
        return GC_STACK_NONE;
    record.object_key = gc_objects_key(&stacks->scope.objects, record.frames, record.frame_count);
    return gc_intern_add(&stacks->stacks, &record, record_bytes(&record));
}

/* The stack as a site of the device. */
static uint32_t site_of(struct gc_stack_table *stacks, int ordinal, uint32_t stack)
{
    struct record record;
    uint32_t bytes;
    const void *string = gc_intern_string(&stacks->stacks, stack, &bytes);
    memcpy(&record, string, bytes);
    record.ordinal = ordinal;
    return gc_intern_add(&stacks->sites, &record, bytes);
}

/* ---- live allocations ---- */

static uint64_t key_of(int ordinal, uint64_t address)
{
    return address ^ (uint64_t)ordinal << 56;
}

static void count_up(_Atomic uint64_t *counters, uint64_t bytes)
{
    atomic_fetch_add_explicit(&counters[SITE_COUNT], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counters[SITE_BYTES], bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&counters[SITE_LIVE_COUNT], 1, memory_order_relaxed);
    const uint64_t live =
        atomic_fetch_add_explicit(&counters[SITE_LIVE_BYTES], bytes, memory_order_relaxed) + bytes;
    uint64_t peak = atomic_load_explicit(&counters[SITE_PEAK], memory_order_relaxed);
    while (peak < live &&
           !atomic_compare_exchange_weak_explicit(&counters[SITE_PEAK], &peak, live,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

static void count_down(_Atomic uint64_t *counters, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&counters[SITE_LIVE_COUNT], 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&counters[SITE_LIVE_BYTES], bytes, memory_order_relaxed);
}

/* Records the scan at the site's first use, which identifies the objects of its addresses. */
static void record_scan(struct gc_stack_table *stacks, uint32_t site)
{
    _Atomic uint64_t *scan = &gc_intern_counters(&stacks->sites, site)[SITE_SCAN];
    if (atomic_load_explicit(scan, memory_order_relaxed) == 0)
        atomic_store_explicit(
            scan, atomic_load_explicit(&stacks->scope.objects.scan, memory_order_acquire),
            memory_order_relaxed);
}

void gc_stacks_on_alloc(struct gc_stack_table *stacks, int ordinal, uint64_t address,
                        uint64_t bytes, uint32_t stack)
{
    struct gc_stack_map_entry replaced; /* its free was not seen */
    const struct gc_stack_map_entry place = {
        .key = key_of(ordinal, address),
        .bytes = bytes,
        .stack = stack != GC_STACK_NONE ? site_of(stacks, ordinal, stack) : 0,
    };
    if (place.stack == 0 || !gc_stack_map_set(&stacks->places, &place, &replaced)) {
        atomic_fetch_add_explicit(&stacks->lost, 1, memory_order_relaxed);
        return;
    }
    if (replaced.stack != 0)
        count_down(gc_intern_counters(&stacks->sites, replaced.stack), replaced.bytes);
    record_scan(stacks, place.stack);
    count_up(gc_intern_counters(&stacks->sites, place.stack), bytes);
}

void gc_stacks_on_free(struct gc_stack_table *stacks, int ordinal, uint64_t address)
{
    const struct gc_stack_map_entry place =
        gc_stack_map_remove(&stacks->places, key_of(ordinal, address));
    if (place.stack != 0)
        count_down(gc_intern_counters(&stacks->sites, place.stack), place.bytes);
}

uint32_t gc_stacks_find(struct gc_stack_table *stacks, int ordinal, uint64_t address)
{
    return gc_stack_map_find(&stacks->places, key_of(ordinal, address));
}

uint64_t gc_stacks_lost(const struct gc_stack_table *stacks)
{
    return atomic_load_explicit(&stacks->lost, memory_order_relaxed);
}

/* ---- print ---- */

static void describe(const struct gc_stack_table *stacks, uint32_t scan, uint64_t frame,
                     char text[GC_STACK_TEXT_BYTES])
{
    const struct gc_object_record *past =
        gc_objects_find(&stacks->scope.objects, (uintptr_t)frame - 1, scan);
    uint32_t bytes;
    const char *name = NULL;
    /* A path is interned as a Python file of a function without a name. */
    if (past != NULL && past->name != 0)
        name = (const char *)gc_intern_string(&stacks->texts, past->name, &bytes) + 1;
    gc_unwind_describe(frame, past != NULL ? past->start : 0, name, text, GC_STACK_TEXT_BYTES);
}

static void describe_frame(const struct gc_stack_table *stacks, uint32_t scan, uint64_t frame,
                           char text[GC_STACK_TEXT_BYTES])
{
    uint32_t bytes;
    if ((frame & GC_FRAME_PYTHON) == 0) {
        describe(stacks, scan, frame, text);
        return;
    }
    const uint32_t number = (uint32_t)((frame & ~GC_FRAME_PYTHON) >> GC_FRAME_LINE_BITS);
    const char *function = number != 0 ? gc_intern_string(&stacks->texts, number, &bytes) : "?\0?";
    snprintf(text, GC_STACK_TEXT_BYTES, "%s (%s:%u)", function, function + strlen(function) + 1,
             (unsigned)(frame & ((UINT64_C(1) << GC_FRAME_LINE_BITS) - 1)));
}

bool gc_stacks_frame(const struct gc_stack_table *stacks, uint32_t site, uint32_t index,
                     char text[GC_STACK_TEXT_BYTES])
{
    uint32_t bytes;
    const struct record *record = gc_intern_string(&stacks->sites, site, &bytes);
    const _Atomic uint64_t *counters = gc_intern_counters(&stacks->sites, site);
    if (index >= record->frame_count)
        return false;
    describe_frame(stacks,
                   (uint32_t)atomic_load_explicit(&counters[SITE_SCAN], memory_order_relaxed),
                   record->frames[index], text);
    return true;
}

/* ---- for the trace ---- */

static bool is_first(const struct gc_intern *intern, uint32_t number)
{
    return atomic_exchange_explicit(&gc_intern_counters(intern, number)[0], 1,
                                    memory_order_relaxed) == 0;
}

bool gc_stacks_is_new(struct gc_stack_table *stacks, uint32_t stack)
{
    return is_first(&stacks->stacks, stack);
}

uint32_t gc_stacks_texts(struct gc_stack_table *stacks, uint32_t stack,
                         uint32_t numbers[GC_STACK_FRAMES_MAX])
{
    const uint32_t scan = atomic_load_explicit(&stacks->scope.objects.scan, memory_order_acquire);
    char text[GC_STACK_TEXT_BYTES];
    uint32_t bytes;
    uint32_t count = 0;
    const struct record *record = gc_intern_string(&stacks->stacks, stack, &bytes);
    for (uint32_t i = 0; i < record->frame_count; i++) {
        describe_frame(stacks, scan, record->frames[i], text);
        numbers[count] = gc_intern_add(&stacks->texts, text, (uint32_t)strlen(text) + 1);
        count += numbers[count] != 0; /* a full table leaves a frame out */
    }
    return count;
}

bool gc_stacks_text(struct gc_stack_table *stacks, uint32_t number, char text[GC_STACK_TEXT_BYTES])
{
    uint32_t bytes;
    const char *string = gc_intern_string(&stacks->texts, number, &bytes);
    memcpy(text, string, gc_min_u64(bytes, GC_STACK_TEXT_BYTES));
    return is_first(&stacks->texts, number);
}

struct listing {
    struct gc_stack_table *stacks;
    int ordinal;
    struct gc_stack_site *sites;
    uint32_t count;
    uint32_t max;
};

/* Inserts in order; the smallest entry drops out. */
static void list_site(void *argument, uint32_t number)
{
    struct listing *listing = argument;
    uint32_t bytes;
    const struct record *record = gc_intern_string(&listing->stacks->sites, number, &bytes);
    _Atomic uint64_t *counters = gc_intern_counters(&listing->stacks->sites, number);
    const struct gc_stack_site site = {
        .site = number,
        .count = atomic_load_explicit(&counters[SITE_COUNT], memory_order_relaxed),
        .bytes = atomic_load_explicit(&counters[SITE_BYTES], memory_order_relaxed),
        .live_count = atomic_load_explicit(&counters[SITE_LIVE_COUNT], memory_order_relaxed),
        .live_bytes = atomic_load_explicit(&counters[SITE_LIVE_BYTES], memory_order_relaxed),
        .peak_bytes = atomic_load_explicit(&counters[SITE_PEAK], memory_order_relaxed),
    };
    uint32_t i = listing->count;
    if (record->ordinal != listing->ordinal || site.count == 0)
        return;
    if (i == listing->max && listing->sites[--i].peak_bytes >= site.peak_bytes)
        return;
    for (; i > 0 && listing->sites[i - 1].peak_bytes < site.peak_bytes; i--)
        listing->sites[i] = listing->sites[i - 1];
    listing->sites[i] = site;
    listing->count += listing->count < listing->max;
}

uint32_t gc_stacks_sites(struct gc_stack_table *stacks, int ordinal, struct gc_stack_site *sites,
                         uint32_t max)
{
    struct listing listing = {stacks, ordinal, sites, 0, max};
    if (max > 0)
        gc_intern_visit(&stacks->sites, list_site, &listing);
    return listing.count;
}
