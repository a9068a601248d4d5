/* An entry is complete before `count` includes it; afterwards only its times change. An object that
 * is loaded again unchanged gets its old entry again. Several objects may have had one address: the
 * last one loaded counts. */
#define _GNU_SOURCE
#include "core/observe/objects.h"

#include "core/base/bits.h"
#include "core/io/elf_object.h"

#include <link.h>
#include <unistd.h>

struct scan {
    struct gc_objects *objects;
    gc_stack_intern_path *intern;
    void *argument;
    uint32_t number;
    uint32_t next; /* expected index of the next object */
};

static struct gc_object_record extent_of(const struct dl_phdr_info *info)
{
    struct gc_object_record extent = {.start = UINTPTR_MAX};
    const uintptr_t page = (uintptr_t)getpagesize() - 1;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type != PT_LOAD)
            continue;
        extent.start = gc_min_u64(extent.start, start & ~page);
        extent.end = gc_max_u64(extent.end, start + header->p_memsz);
    }
    return extent;
}

static uint32_t count_of(const struct gc_objects *objects)
{
    /* acquire: pairs with the release in add */
    return atomic_load_explicit(&objects->count, memory_order_acquire);
}

/* The entry of an object with this extent, or NULL. */
static struct gc_object_record *entry_of(struct scan *scan, const struct gc_object_record *extent)
{
    const uint32_t count = count_of(scan->objects);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = (scan->next + i) % count;
        struct gc_object_record *past = &scan->objects->past[at];
        if (past->start == extent->start && past->end == extent->end &&
            past->name == extent->name) {
            scan->next = at + 1;
            return past;
        }
    }
    return NULL;
}

/* Marks the new object and those that it overlaps. */
static void set_shared(struct gc_objects *objects, struct gc_object_record *added, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct gc_object_record *past = &objects->past[i];
        if (past->end <= added->start || added->end <= past->start)
            continue;
        atomic_store_explicit(&past->is_shared, true, memory_order_relaxed);
        atomic_store_explicit(&added->is_shared, true, memory_order_relaxed);
        atomic_store_explicit(&objects->has_shared, true, memory_order_relaxed);
    }
}

static void add(struct scan *scan, const struct gc_object_record *extent)
{
    const uint32_t count = count_of(scan->objects);
    if (count == GC_OBJECTS_MAX)
        return;
    struct gc_object_record *past = &scan->objects->past[count];
    past->start = extent->start;
    past->end = extent->end;
    past->name = extent->name;
    past->since = scan->number;
    past->seen = scan->number;
    set_shared(scan->objects, past, count);
    atomic_store_explicit(&scan->objects->count, count + 1, memory_order_release);
}

static int add_object(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct scan *scan = argument;
    struct gc_object_record extent = extent_of(info);
    (void)size;
    /* The program itself has no name here and is never unloaded. */
    if (extent.start >= extent.end || info->dlpi_name == NULL || info->dlpi_name[0] == '\0')
        return 0;
    extent.name = scan->intern(scan->argument, info->dlpi_name);
    struct gc_object_record *past = entry_of(scan, &extent);
    if (past == NULL) {
        add(scan, &extent);
        return 0;
    }
    past->seen = scan->number;
    atomic_store_explicit(&past->until, 0, memory_order_relaxed);
    return 0;
}

void gc_objects_refresh(struct gc_objects *objects, unsigned long long loads,
                        gc_stack_intern_path *intern, void *argument)
{
    struct scan scan = {.objects = objects, .intern = intern, .argument = argument};
    if (atomic_load_explicit(&objects->loads, memory_order_relaxed) == loads ||
        atomic_flag_test_and_set_explicit(&objects->is_scanning, memory_order_acquire))
        return;
    scan.number = atomic_load_explicit(&objects->scan, memory_order_relaxed) + 1;
    gc_elf_walk(add_object, &scan);
    const uint32_t count = count_of(objects);
    for (uint32_t i = 0; i < count; i++) {
        struct gc_object_record *past = &objects->past[i];
        if (past->seen != scan.number &&
            atomic_load_explicit(&past->until, memory_order_relaxed) == 0)
            atomic_store_explicit(&past->until, scan.number, memory_order_relaxed);
    }
    atomic_store_explicit(&objects->scan, scan.number, memory_order_release);
    atomic_store_explicit(&objects->loads, loads, memory_order_relaxed);
    atomic_flag_clear_explicit(&objects->is_scanning, memory_order_release);
}

static bool has_any(const struct gc_object_record *past, const uint64_t *frames, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (frames[i] > past->start && frames[i] <= past->end)
            return true;
    }
    return false;
}

uint64_t gc_objects_key(const struct gc_objects *objects, const uint64_t *frames, uint32_t count)
{
    uint64_t key = 0;
    if (!atomic_load_explicit(&objects->has_shared, memory_order_relaxed))
        return 0;
    const uint32_t past_count = count_of(objects);
    for (uint32_t i = 0; i < past_count; i++) {
        const struct gc_object_record *past = &objects->past[i];
        if (atomic_load_explicit(&past->is_shared, memory_order_relaxed) &&
            atomic_load_explicit(&past->until, memory_order_relaxed) == 0 &&
            has_any(past, frames, count))
            key += gc_mix_u64(i + 1);
    }
    return key;
}

const struct gc_object_record *gc_objects_find(const struct gc_objects *objects, uintptr_t address,
                                               uint32_t scan)
{
    const uint32_t count = count_of(objects);
    const struct gc_object_record *found = NULL;
    for (uint32_t i = 0; i < count; i++) {
        const struct gc_object_record *past = &objects->past[i];
        const uint32_t until = atomic_load_explicit(&past->until, memory_order_relaxed);
        const bool is_there = past->since <= scan && (until == 0 || scan < until);
        if (is_there && address >= past->start && address < past->end &&
            (found == NULL || found->since < past->since))
            found = past;
    }
    return found;
}

/* ---- the object of an address ---- */

struct search {
    uintptr_t address;
    struct gc_stack_object object;
    bool found;
    unsigned long long loads;
};

static int visit_object(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct search *search = argument;
    struct gc_stack_object object = {UINTPTR_MAX, 0};
    (void)size;
    search->loads = info->dlpi_adds;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type != PT_LOAD)
            continue;
        object.start = gc_min_u64(object.start, start);
        object.end = gc_max_u64(object.end, start + header->p_memsz);
    }
    if (search->address < object.start || search->address >= object.end)
        return search->address == 0; /* address 0: only the count is wanted */
    search->object = object;
    search->found = true;
    return 1;
}

bool gc_objects_find_loaded(uintptr_t address, struct gc_stack_object *object,
                            unsigned long long *loads)
{
    struct search search = {.address = address};
    gc_elf_walk(visit_object, &search);
    if (loads != NULL)
        *loads = search.loads;
    if (search.found && object != NULL)
        *object = search.object;
    return search.found;
}
