/* Mapped memory of the simulated platform: reserved ranges, physical pages, mappings. Each array is
 * kept in order and searched by halves. */
#include "core/core.h"
#include "tests/unit/sim_driver.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define RANGES_BASE UINT64_C(0x300000000000)
#define RANGES_GAP (UINT64_C(1) << 30)

/* Room for one element more at `index`; the array may move. */
static void *open_gap(void *array, uint64_t *count, uint64_t *room, uint64_t index, size_t bytes)
{
    char *grown = array;
    if (*count == *room) {
        *room = *room * 2 + 64;
        grown = realloc(grown, *room * bytes);
    }
    memmove(grown + (index + 1) * bytes, grown + index * bytes, (*count - index) * bytes);
    ++*count;
    return grown;
}

static void close_gap(void *array, uint64_t *count, uint64_t index, size_t bytes)
{
    char *at = (char *)array + index * bytes;
    --*count;
    memmove(at, at + bytes, (*count - index) * bytes);
}

/* The number of elements whose key, their first word, is at most `key`. */
static uint64_t count_up_to(const void *array, uint64_t count, size_t bytes, uint64_t key)
{
    uint64_t low = 0;
    while (low < count) {
        const uint64_t middle = low + (count - low) / 2;
        uint64_t found;
        memcpy(&found, (const char *)array + middle * bytes, sizeof(found));
        if (found <= key)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

/* The first mapping that touches the range, or the first behind it. */
static uint64_t first_mapping(const struct sim_driver *sim, uint64_t address)
{
    const uint64_t i =
        count_up_to(sim->mappings, sim->mapping_count, sizeof(*sim->mappings), address);
    if (i > 0 && address - sim->mappings[i - 1].address < sim->mappings[i - 1].bytes)
        return i - 1;
    return i;
}

static struct sim_page *find_page(struct sim_driver *sim, uint64_t handle)
{
    const uint64_t i = count_up_to(sim->pages, sim->page_count, sizeof(*sim->pages), handle);
    if (i == 0 || sim->pages[i - 1].handle != handle)
        return NULL;
    return &sim->pages[i - 1];
}

static void drop_page_if_unused(struct sim_driver *sim, struct sim_page *page)
{
    if (!page->is_released || page->mapping_count > 0)
        return;
    if (page->is_host)
        sim->host_bytes -= page->bytes;
    else
        sim->used_bytes -= page->bytes;
    close_gap(sim->pages, &sim->page_count, (uint64_t)(page - sim->pages), sizeof(*page));
}

/* Memory of a device, which no context names, is every context's. */
static bool is_captured(const struct sim_driver *sim, uint64_t context)
{
    bool is_any = false;
    for (uint64_t i = 0; i < SIM_CONTEXTS; i++)
        is_any |= sim->is_capturing[i] && (i == context || gc_context_handle_is_of_device(context));
    return is_any;
}

static int begin(struct sim_driver *sim, enum sim_call call, uint64_t context, uint64_t address)
{
    const int injected = sim_driver_begin(sim, call, context);
    /* Giving access takes nothing away and waits for nothing, and what is idle may go. */
    const bool may_be = call == SIM_PAGE_SET_ACCESS || call == SIM_PAGE_UNMAP ||
                        call == SIM_PAGE_RELEASE || call == SIM_ADDRESS_FREE;
    if (injected == 0 && is_captured(sim, context) && !may_be)
        sim_driver_violate(sim, "mapped memory touched during a capture", address);
    return injected;
}

static int address_reserve(void *self, uint64_t context, uint64_t bytes, uint64_t alignment,
                           uint64_t *address)
{
    struct sim_driver *sim = self;
    const int injected = begin(sim, SIM_ADDRESS_RESERVE, context, bytes);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    if (bytes == 0 || alignment == 0) {
        sim_driver_violate(sim, "a range of nothing", bytes);
        return sim_driver_end(sim, 1);
    }
    *address = (sim->next_range + alignment - 1) / alignment * alignment;
    sim->next_range = *address + bytes + RANGES_GAP;
    sim->ranges = open_gap(sim->ranges, &sim->range_count, &sim->range_room, sim->range_count,
                           sizeof(*sim->ranges));
    sim->ranges[sim->range_count - 1] = (struct sim_range){*address, bytes};
    return sim_driver_end(sim, 0);
}

static int address_free(void *self, uint64_t context, uint64_t address, uint64_t bytes)
{
    struct sim_driver *sim = self;
    const int injected = begin(sim, SIM_ADDRESS_FREE, context, address);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    const uint64_t i = count_up_to(sim->ranges, sim->range_count, sizeof(*sim->ranges), address);
    if (i == 0 || sim->ranges[i - 1].address != address || sim->ranges[i - 1].bytes != bytes) {
        sim_driver_violate(sim, "a free of no range", address);
        return sim_driver_end(sim, 1);
    }
    const uint64_t mapping = first_mapping(sim, address);
    if (mapping < sim->mapping_count && sim->mappings[mapping].address < address + bytes)
        sim_driver_violate(sim, "a range freed while it is mapped", address);
    close_gap(sim->ranges, &sim->range_count, i - 1, sizeof(*sim->ranges));
    return sim_driver_end(sim, 0);
}

static uint64_t add_page(struct sim_driver *sim, uint64_t bytes, bool is_host)
{
    sim->pages = open_gap(sim->pages, &sim->page_count, &sim->page_room, sim->page_count,
                          sizeof(*sim->pages));
    sim->pages[sim->page_count - 1] =
        (struct sim_page){.handle = ++sim->next_handle, .bytes = bytes, .is_host = is_host};
    return sim->next_handle;
}

static int page_create(void *self, uint64_t context, uint64_t bytes, uint64_t *handle)
{
    struct sim_driver *sim = self;
    const int injected = begin(sim, SIM_PAGE_CREATE, context, bytes);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    if (bytes > sim->capacity_bytes - sim->used_bytes)
        return sim_driver_end(sim, SIM_OUT_OF_MEMORY);
    *handle = add_page(sim, bytes, false);
    sim->used_bytes += bytes;
    if (sim->used_bytes > sim->peak_bytes)
        sim->peak_bytes = sim->used_bytes;
    return sim_driver_end(sim, 0);
}

static int page_create_host(void *self, uint64_t context, uint64_t bytes, uint64_t *handle)
{
    struct sim_driver *sim = self;
    const int injected = begin(sim, SIM_PAGE_CREATE_HOST, context, bytes);
    if (injected != 0 || sim->has_no_host_pages)
        return sim_driver_end(sim, injected != 0 ? injected : SIM_NOT_SUPPORTED);
    *handle = add_page(sim, bytes, true);
    sim->host_bytes += bytes;
    return sim_driver_end(sim, 0);
}

static int page_release(void *self, uint64_t context, uint64_t handle)
{
    struct sim_driver *sim = self;
    const int injected = begin(sim, SIM_PAGE_RELEASE, context, handle);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    struct sim_page *page = find_page(sim, handle);
    if (page == NULL || page->is_released) {
        sim_driver_violate(sim, "a release of no page", handle);
        return sim_driver_end(sim, 1);
    }
    page->is_released = true;
    drop_page_if_unused(sim, page);
    return sim_driver_end(sim, 0);
}

/* The descriptor is of nothing that is of use. */
static int page_export(void *self, uint64_t context, uint64_t handle, int *fd)
{
    struct sim_driver *sim = self;
    const int injected = sim_driver_begin(sim, SIM_PAGE_EXPORT, context);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    const struct sim_page *page = find_page(sim, handle);
    if (page == NULL || page->is_released)
        sim_driver_violate(sim, "an export of no page", handle);
    *fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return sim_driver_end(sim, *fd < 0 ? SIM_BROKEN : 0);
}

static bool is_reserved(const struct sim_driver *sim, uint64_t address, uint64_t bytes)
{
    const uint64_t i = count_up_to(sim->ranges, sim->range_count, sizeof(*sim->ranges), address);
    return i > 0 && address + bytes <= sim->ranges[i - 1].address + sim->ranges[i - 1].bytes;
}

static int page_map(void *self, uint64_t context, uint64_t address, uint64_t bytes, uint64_t handle)
{
    struct sim_driver *sim = self;
    const int injected = begin(sim, SIM_PAGE_MAP, context, address);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    struct sim_page *page = find_page(sim, handle);
    const uint64_t i = first_mapping(sim, address);
    if (page == NULL || page->is_released || page->bytes != bytes)
        sim_driver_violate(sim, "a map of no such page", handle);
    else if (!is_reserved(sim, address, bytes))
        sim_driver_violate(sim, "a map outside the ranges", address);
    else if (i < sim->mapping_count && sim->mappings[i].address < address + bytes)
        sim_driver_violate(sim, "a map over a mapping", address);
    else {
        page->mapping_count++;
        sim->mappings = open_gap(sim->mappings, &sim->mapping_count, &sim->mapping_room, i,
                                 sizeof(*sim->mappings));
        sim->mappings[i] =
            (struct sim_mapping){.address = address, .bytes = bytes, .handle = handle};
        return sim_driver_end(sim, 0);
    }
    return sim_driver_end(sim, 1);
}

/* Whether whole mappings tile the range; *first is the first of them. */
static bool is_tiled(const struct sim_driver *sim, uint64_t address, uint64_t bytes,
                     uint64_t *first)
{
    uint64_t at = address;
    *first = first_mapping(sim, address);
    for (uint64_t i = *first; i < sim->mapping_count && at < address + bytes; i++) {
        if (sim->mappings[i].address != at)
            return false;
        at += sim->mappings[i].bytes;
    }
    return bytes > 0 && at == address + bytes;
}

static int page_set_access(void *self, uint64_t context, uint64_t address, uint64_t bytes,
                           const int *peers, uint32_t peer_count)
{
    struct sim_driver *sim = self;
    const int injected = begin(sim, SIM_PAGE_SET_ACCESS, context, address);
    uint64_t i;
    uint64_t mask = 0;
    for (uint32_t k = 0; k < peer_count; k++)
        mask |= UINT64_C(1) << peers[k];
    if (injected != 0)
        return sim_driver_end(sim, injected);
    if (!is_tiled(sim, address, bytes, &i)) {
        sim_driver_violate(sim, "access to what is not mapped", address);
        return sim_driver_end(sim, 1);
    }
    for (; i < sim->mapping_count && sim->mappings[i].address < address + bytes; i++) {
        sim->mappings[i].is_accessible = true;
        sim->mappings[i].peers |= mask;
    }
    return sim_driver_end(sim, 0);
}

static int page_unmap(void *self, uint64_t context, uint64_t address, uint64_t bytes)
{
    struct sim_driver *sim = self;
    const int injected = begin(sim, SIM_PAGE_UNMAP, context, address);
    uint64_t i;
    if (injected != 0)
        return sim_driver_end(sim, injected);
    if (!is_tiled(sim, address, bytes, &i)) {
        sim_driver_violate(sim, "an unmap of what is not mapped", address);
        return sim_driver_end(sim, 1);
    }
    if (sim_driver_is_used(sim, address, bytes))
        sim_driver_violate(sim, "memory unmapped while work uses it", address);
    if (sim_copy_is_of(sim, address, bytes))
        sim_driver_violate(sim, "memory unmapped during a copy", address);
    while (i < sim->mapping_count && sim->mappings[i].address < address + bytes) {
        struct sim_page *page = find_page(sim, sim->mappings[i].handle);
        page->mapping_count--;
        drop_page_if_unused(sim, page);
        close_gap(sim->mappings, &sim->mapping_count, i, sizeof(*sim->mappings));
    }
    return sim_driver_end(sim, 0);
}

/* The page behind an address that is mapped. */
static struct sim_page *page_at(struct sim_driver *sim, uint64_t address)
{
    const uint64_t i = first_mapping(sim, address);
    if (i == sim->mapping_count || sim->mappings[i].address > address)
        return NULL;
    return find_page(sim, sim->mappings[i].handle);
}

/* Whole mappings that may be used. */
static bool is_dedicated(const struct sim_driver *sim, uint64_t address, uint64_t bytes)
{
    uint64_t first;
    return is_tiled(sim, address, bytes, &first) && sim_mapping_is_open(sim, address, bytes, -1);
}

bool sim_mapping_copy_out(struct sim_driver *sim, uint64_t address, uint64_t bytes, void *to)
{
    if (!is_dedicated(sim, address, bytes))
        return false;
    if (sim_driver_is_used(sim, address, bytes))
        sim_driver_violate(sim, "a copy while work uses the memory", address);
    for (uint64_t at = 0; at < bytes; at += page_at(sim, address + at)->bytes)
        memcpy((char *)to + at, &page_at(sim, address + at)->content, sizeof(uint64_t));
    return true;
}

bool sim_mapping_copy_in(struct sim_driver *sim, uint64_t address, uint64_t bytes, const void *from)
{
    if (!is_dedicated(sim, address, bytes))
        return false;
    for (uint64_t at = 0; at < bytes; at += page_at(sim, address + at)->bytes)
        memcpy(&page_at(sim, address + at)->content, (const char *)from + at, sizeof(uint64_t));
    return true;
}

static int write_pages(void *self, uint64_t context, uint64_t address, uint64_t bytes,
                       const void *from)
{
    struct sim_driver *sim = self;
    const int injected = begin(sim, SIM_WRITE, context, address);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    if (!sim_mapping_copy_in(sim, address, bytes, from)) {
        sim_driver_violate(sim, "a copy to what is not mapped", address);
        return sim_driver_end(sim, 1);
    }
    return sim_driver_end(sim, 0);
}

void sim_driver_put(struct sim_driver *sim, uint64_t address, uint64_t content)
{
    pthread_mutex_lock(&sim->lock);
    page_at(sim, address)->content = content;
    pthread_mutex_unlock(&sim->lock);
}

uint64_t sim_driver_get(struct sim_driver *sim, uint64_t address)
{
    pthread_mutex_lock(&sim->lock);
    const struct sim_page *page = page_at(sim, address);
    const uint64_t content = page == NULL ? 0 : page->content;
    pthread_mutex_unlock(&sim->lock);
    return content;
}

bool sim_mapping_is_reserved(const struct sim_driver *sim, uint64_t address)
{
    return is_reserved(sim, address, 1);
}

bool sim_mapping_is_open(const struct sim_driver *sim, uint64_t address, uint64_t bytes, int device)
{
    uint64_t at = address;
    for (uint64_t i = first_mapping(sim, address);
         i < sim->mapping_count && at < address + bytes && sim->mappings[i].address <= at &&
         sim->mappings[i].is_accessible &&
         (device < 0 || (sim->mappings[i].peers >> device & 1) != 0);
         i++)
        at = sim->mappings[i].address + sim->mappings[i].bytes;
    return at >= address + bytes;
}

bool sim_driver_is_accessible(struct sim_driver *sim, uint64_t address, uint64_t bytes)
{
    return sim_driver_is_open_to(sim, -1, address, bytes);
}

bool sim_driver_is_open_to(struct sim_driver *sim, int device, uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&sim->lock);
    const bool is_open = sim_mapping_is_open(sim, address, bytes, device);
    pthread_mutex_unlock(&sim->lock);
    return is_open;
}

struct sim_piece sim_mapping_translate(const struct sim_driver *sim, uint64_t address,
                                       uint64_t bytes)
{
    const uint64_t i = first_mapping(sim, address);
    if (i == sim->mapping_count || sim->mappings[i].address > address)
        return (struct sim_piece){.offset = address, .bytes = bytes};
    const struct sim_mapping *mapping = &sim->mappings[i];
    const uint64_t offset = address - mapping->address;
    const uint64_t left = mapping->bytes - offset;
    return (struct sim_piece){mapping->handle, offset, bytes < left ? bytes : left};
}

struct sim_piece sim_driver_translate(struct sim_driver *sim, uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&sim->lock);
    const struct sim_piece piece = sim_mapping_translate(sim, address, bytes);
    pthread_mutex_unlock(&sim->lock);
    return piece;
}

void sim_mapping_init(struct sim_driver *sim)
{
    sim->next_range = RANGES_BASE;
    sim->table.address_reserve = address_reserve;
    sim->table.address_free = address_free;
    sim->table.page_create = page_create;
    sim->table.page_create_host = page_create_host;
    sim->table.page_release = page_release;
    sim->table.page_map = page_map;
    sim->table.page_set_access = page_set_access;
    sim->table.page_unmap = page_unmap;
    sim->table.page_export = page_export;
    sim->table.write = write_pages;
}

void sim_mapping_fini(struct sim_driver *sim)
{
    free(sim->ranges);
    free(sim->pages);
    free(sim->mappings);
}
