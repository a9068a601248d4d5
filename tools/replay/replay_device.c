#include "tools/replay/replay_device.h"

#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/pool/pagemap.h"

#include <stdlib.h>
#include <string.h>

/* Error codes of CUDA. */
#define OUT_OF_MEMORY 2
#define CONTEXT_IS_GONE 709
#define INVALID_VALUE 1
#define NOT_READY 600
#define NOT_SUPPORTED 801

#define PLAIN_SMALL_BYTES (UINT64_C(1) << 20) /* larger ones take whole pages */
#define FIRST_ADDRESS (UINT64_C(1) << 32)
#define LAST_ADDRESS (UINT64_C(1) << GC_PAGEMAP_ADDRESS_BITS)

static const struct {
    const char *name;
    uint64_t ns;
} calls[] = {
#define REPLAY_CALL(name, text, us) {text, (us)*UINT64_C(1000)},
    REPLAY_CALLS(REPLAY_CALL)
#undef REPLAY_CALL
};

const char *replay_call_name(enum replay_call call)
{
    return calls[call].name;
}

static struct replay_device *begin(void *self, enum replay_call call)
{
    struct replay_device *device = self;
    pthread_mutex_lock(&device->lock);
    device->calls[call]++;
    device->total_calls++;
    device->driver_ns += calls[call].ns;
    return device;
}

static int end(struct replay_device *device, int code)
{
    pthread_mutex_unlock(&device->lock);
    return code;
}

/* Counts a call that no driver allows. */
static int fault(struct replay_device *device, const char *what)
{
    if (device->fault_count++ == 0)
        device->first_fault = what;
    return INVALID_VALUE;
}

/* ---- physical memory ---- */

/* One handle more. */
static bool hold(struct replay_device *device, uint64_t bytes)
{
    if (bytes > device->capacity_bytes - device->held_bytes)
        return false;
    device->held_bytes += bytes;
    if (device->held_bytes > device->peak_bytes)
        device->peak_bytes = device->held_bytes;
    device->handle_count++;
    if (device->handle_count > device->peak_handle_count)
        device->peak_handle_count = device->handle_count;
    device->driver_ns += (bytes >> 10) * REPLAY_NS_PER_GIB >> 20;
    return true;
}

/* ---- addresses ---- */

/* Pops a free range of exactly this size. */
static bool pop_range(struct replay_device *device, uint64_t bytes, uint64_t *address)
{
    struct trace_allocation list;
    if (!trace_ledger_remove(&device->free_ranges, bytes, &list))
        return false;
    struct replay_range *node = &device->free_nodes[list.id - 1];
    const size_t index = (size_t)list.id;
    *address = node->address;
    list.id = node->next;
    node->next = device->spare_nodes;
    device->spare_nodes = index;
    /* The add cannot fail: an entry was just removed. */
    return list.id == 0 || trace_ledger_add(&device->free_ranges, &list) == GC_OK;
}

/* `alignment` is a power of two, the same for all ranges of one size. */
static bool alloc_range(struct replay_device *device, uint64_t bytes, uint64_t alignment,
                        uint64_t *address)
{
    uint64_t start;
    if (!pop_range(device, bytes, address) || (*address & (alignment - 1)) != 0) {
        if (!gc_round_up_u64(device->next_address, alignment, &start) || start > LAST_ADDRESS ||
            bytes > LAST_ADDRESS - start)
            return false;
        device->next_address = start + bytes;
        *address = start;
    }
    return trace_ledger_add(
               &device->ranges,
               &(struct trace_allocation){.address = *address, .id = 1, .bytes = bytes}) == GC_OK;
}

/* A node for a free range: index + 1; 0 if memory runs out, and the addresses are leaked. */
static size_t new_node(struct replay_device *device)
{
    if (device->spare_nodes != 0) {
        const size_t node = device->spare_nodes;
        device->spare_nodes = device->free_nodes[node - 1].next;
        return node;
    }
    if (device->free_node_count == device->free_node_room) {
        const size_t room = device->free_node_room > 0 ? device->free_node_room * 2 : 1024;
        struct replay_range *nodes = reallocarray(device->free_nodes, room, sizeof(*nodes));
        if (nodes == NULL)
            return 0;
        device->free_nodes = nodes;
        device->free_node_room = room;
    }
    return ++device->free_node_count;
}

/* Frees the range; returns its bytes, or 0 if no range begins at the address. */
static uint64_t free_range(struct replay_device *device, uint64_t address)
{
    struct trace_allocation range;
    struct trace_allocation list = {.id = 0};
    if (!trace_ledger_remove(&device->ranges, address, &range))
        return 0;
    (void)trace_ledger_remove(&device->free_ranges, range.bytes, &list);
    const size_t node = new_node(device);
    if (node == 0)
        return range.bytes;
    device->free_nodes[node - 1] = (struct replay_range){.address = address, .next = list.id};
    list = (struct trace_allocation){.address = range.bytes, .id = node};
    (void)!trace_ledger_add(&device->free_ranges, &list);
    return range.bytes;
}

/* ---- plain allocations ---- */

static int mem_alloc(void *self, uint64_t context, uint64_t bytes, uint64_t *address)
{
    struct replay_device *device = begin(self, REPLAY_CALL_ALLOC);
    uint64_t rounded;
    (void)context;
    if (bytes == 0)
        return end(device, fault(device, "an allocation of 0 bytes"));
    const uint64_t unit = bytes <= PLAIN_SMALL_BYTES ? GC_GRANULE : REPLAY_PAGE_BYTES;
    if (!gc_round_up_u64(bytes, unit, &rounded) || !hold(device, rounded))
        return end(device, OUT_OF_MEMORY);
    if (!alloc_range(device, rounded, unit, address)) {
        device->held_bytes -= rounded;
        device->handle_count--;
        return end(device, OUT_OF_MEMORY);
    }
    return end(device, 0);
}

static int mem_free(void *self, uint64_t context, uint64_t address)
{
    struct replay_device *device = begin(self, REPLAY_CALL_FREE);
    const uint64_t bytes = free_range(device, address);
    (void)context;
    device->held_bytes -= bytes;
    device->handle_count -= bytes > 0;
    return end(device, bytes > 0 ? 0 : fault(device, "a free of an unknown address"));
}

static int mem_info(void *self, uint64_t context, uint64_t *free_bytes, uint64_t *total_bytes)
{
    struct replay_device *device = begin(self, REPLAY_CALL_INFO);
    (void)context;
    *free_bytes = device->capacity_bytes - device->held_bytes;
    *total_bytes = device->capacity_bytes;
    return end(device, 0);
}

/* ---- work ---- */

static int synchronize(void *self, uint64_t context)
{
    (void)context;
    return end(begin(self, REPLAY_CALL_SYNCHRONIZE), 0);
}

static int fence_record(void *self, uint64_t context, uint64_t *fence)
{
    struct replay_device *device = begin(self, REPLAY_CALL_FENCE_RECORD);
    (void)context;
    *fence = device->calls[REPLAY_CALL_FENCE_RECORD];
    return end(device, 0);
}

static int fence_query(void *self, uint64_t context, uint64_t fence)
{
    (void)context;
    (void)fence;
    return end(begin(self, REPLAY_CALL_FENCE_QUERY), 0);
}

static int fence_wait(void *self, uint64_t context, uint64_t fence, uint64_t limit_ns)
{
    (void)limit_ns;
    (void)context;
    (void)fence;
    return end(begin(self, REPLAY_CALL_FENCE_WAIT), 0);
}

/* The platform keeps the event in a list: no driver call. */
static void fence_release(void *self, uint64_t context, uint64_t fence)
{
    (void)self;
    (void)context;
    (void)fence;
}

static uint64_t clock_ns(void *self)
{
    (void)self;
    return gc_clock_ns();
}

/* ---- mapped memory ---- */

static int address_reserve(void *self, uint64_t context, uint64_t bytes, uint64_t alignment,
                           uint64_t *address)
{
    struct replay_device *device = begin(self, REPLAY_CALL_ADDRESS_RESERVE);
    (void)context;
    if (bytes == 0 || bytes % REPLAY_PAGE_BYTES != 0 || (alignment & (alignment - 1)) != 0)
        return end(device, fault(device, "a reservation that is not whole pages"));
    const uint64_t aligned = alignment < REPLAY_PAGE_BYTES ? REPLAY_PAGE_BYTES : alignment;
    return end(device, alloc_range(device, bytes, aligned, address) ? 0 : OUT_OF_MEMORY);
}

static int address_free(void *self, uint64_t context, uint64_t address, uint64_t bytes)
{
    struct replay_device *device = begin(self, REPLAY_CALL_ADDRESS_FREE);
    (void)context;
    if (free_range(device, address) != bytes)
        return end(device, fault(device, "a free of an unknown reservation"));
    return end(device, 0);
}

static int page_create(void *self, uint64_t context, uint64_t bytes, uint64_t *handle)
{
    struct replay_device *device = begin(self, REPLAY_CALL_PAGE_CREATE);
    (void)context;
    if (bytes == 0 || bytes % REPLAY_PAGE_BYTES != 0)
        return end(device, fault(device, "memory that is not whole pages"));
    if (device->page_count == device->page_room) {
        const size_t room = device->page_room > 0 ? device->page_room * 2 : 1024;
        struct replay_page *pages = reallocarray(device->pages, room, sizeof(*pages));
        if (pages == NULL)
            return end(device, OUT_OF_MEMORY);
        device->pages = pages;
        device->page_room = room;
    }
    if (!hold(device, bytes))
        return end(device, OUT_OF_MEMORY);
    device->pages[device->page_count] = (struct replay_page){.bytes = bytes};
    *handle = ++device->page_count;
    return end(device, 0);
}

/* NULL, and a fault, if the caller has no such page. */
static struct replay_page *find_page(struct replay_device *device, uint64_t handle)
{
    if (handle == 0 || handle > device->page_count || device->pages[handle - 1].is_released) {
        fault(device, "a page that does not exist");
        return NULL;
    }
    return &device->pages[handle - 1];
}

static int page_release(void *self, uint64_t context, uint64_t handle)
{
    struct replay_device *device = begin(self, REPLAY_CALL_PAGE_RELEASE);
    struct replay_page *page = find_page(device, handle);
    (void)context;
    if (page == NULL)
        return end(device, INVALID_VALUE);
    page->is_released = true;
    device->handle_count--;
    if (page->map_count == 0)
        device->held_bytes -= page->bytes;
    return end(device, 0);
}

static int page_map(void *self, uint64_t context, uint64_t address, uint64_t bytes, uint64_t handle)
{
    struct replay_device *device = begin(self, REPLAY_CALL_PAGE_MAP);
    struct replay_page *page = find_page(device, handle);
    (void)context;
    if (page == NULL)
        return end(device, INVALID_VALUE);
    if (bytes != page->bytes || address % REPLAY_PAGE_BYTES != 0)
        return end(device, fault(device, "a mapping of a part of its memory"));
    for (uint64_t offset = 0; offset < bytes; offset += REPLAY_PAGE_BYTES) {
        if (trace_ledger_find(&device->mapped, address + offset) != NULL)
            return end(device, fault(device, "a page mapped over another"));
        const struct trace_allocation mapping = {
            .address = address + offset, .id = handle, .bytes = offset};
        if (trace_ledger_add(&device->mapped, &mapping) != GC_OK)
            return end(device, OUT_OF_MEMORY);
        page->map_count++;
    }
    return end(device, 0);
}

/* How many handles are mapped there; 0 unless whole pages are, all of them. */
static uint64_t count_mappings(struct replay_device *device, uint64_t address, uint64_t bytes)
{
    uint64_t count = 0;
    if ((address | bytes) % REPLAY_PAGE_BYTES != 0)
        return 0;
    for (uint64_t at = address; at < address + bytes; at += REPLAY_PAGE_BYTES) {
        const struct trace_allocation *mapping = trace_ledger_find(&device->mapped, at);
        if (mapping == NULL)
            return 0;
        count += at == address || mapping->bytes == 0;
    }
    return count;
}

/* The first handle's time is the call's. */
static void spend_on_handles(struct replay_device *device, enum replay_call call, uint64_t count)
{
    device->driver_ns += (count - 1) * calls[call].ns;
}

static int page_set_access(void *self, uint64_t context, uint64_t address, uint64_t bytes,
                           const int *peers, uint32_t peer_count)
{
    struct replay_device *device = begin(self, REPLAY_CALL_PAGE_SET_ACCESS);
    (void)context;
    (void)peers;
    (void)peer_count;
    const uint64_t count = count_mappings(device, address, bytes);
    if (count == 0)
        return end(device, fault(device, "access to an unmapped page"));
    spend_on_handles(device, REPLAY_CALL_PAGE_SET_ACCESS, count);
    return end(device, 0);
}

static int page_unmap(void *self, uint64_t context, uint64_t address, uint64_t bytes)
{
    struct replay_device *device = begin(self, REPLAY_CALL_PAGE_UNMAP);
    struct trace_allocation mapping;
    (void)context;
    const uint64_t count = count_mappings(device, address, bytes);
    if (count == 0)
        return end(device, fault(device, "an unmap of an unmapped page"));
    spend_on_handles(device, REPLAY_CALL_PAGE_UNMAP, count);
    uint64_t missing = 0; /* of the mapping that the last page belongs to */
    for (uint64_t at = address; at < address + bytes; at += REPLAY_PAGE_BYTES) {
        (void)trace_ledger_remove(&device->mapped, at, &mapping);
        struct replay_page *page = &device->pages[mapping.id - 1];
        if ((missing == 0) != (mapping.bytes == 0))
            return end(device, fault(device, "an unmap of a part of a mapping"));
        missing = page->bytes - mapping.bytes - REPLAY_PAGE_BYTES;
        if (--page->map_count == 0 && page->is_released)
            device->held_bytes -= page->bytes;
    }
    if (missing > 0)
        return end(device, fault(device, "an unmap of a part of a mapping"));
    return end(device, 0);
}

/* ---- contents: there is no memory behind the addresses ---- */

static int fill(void *self, uint64_t context, uint64_t address, uint64_t bytes, uint8_t value)
{
    (void)context;
    (void)address;
    (void)bytes;
    (void)value;
    return end(begin(self, REPLAY_CALL_FILL), 0);
}

static int read_memory(void *self, uint64_t context, uint64_t address, uint64_t bytes, void *to)
{
    (void)context;
    (void)address;
    memset(to, 0, bytes);
    return end(begin(self, REPLAY_CALL_READ), 0);
}

static int write_memory(void *self, uint64_t context, uint64_t address, uint64_t bytes,
                        const void *from)
{
    (void)context;
    (void)address;
    (void)bytes;
    (void)from;
    return end(begin(self, REPLAY_CALL_WRITE), 0);
}

void replay_device_init(struct replay_device *device, uint64_t capacity_bytes)
{
    *device = (struct replay_device){
        .capacity_bytes = capacity_bytes,
        .next_address = FIRST_ADDRESS,
        .table =
            {
                .self = device,
                .out_of_memory = OUT_OF_MEMORY,
                .context_is_gone = CONTEXT_IS_GONE,
                .mem_alloc = mem_alloc,
                .mem_free = mem_free,
                .mem_info = mem_info,
                .synchronize = synchronize,
                .clock_ns = clock_ns,
                .not_ready = NOT_READY,
                .not_supported = NOT_SUPPORTED,
                .fence_record = fence_record,
                .fence_query = fence_query,
                .fence_wait = fence_wait,
                .fence_release = fence_release,
                .address_reserve = address_reserve,
                .address_free = address_free,
                .page_create = page_create,
                .page_release = page_release,
                .page_map = page_map,
                .page_set_access = page_set_access,
                .page_unmap = page_unmap,
                .fill = fill,
                .read = read_memory,
                .write = write_memory,
            },
    };
    pthread_mutex_init(&device->lock, NULL);
}

void replay_device_fini(struct replay_device *device)
{
    trace_ledger_fini(&device->ranges);
    trace_ledger_fini(&device->free_ranges);
    trace_ledger_fini(&device->mapped);
    free(device->free_nodes);
    free(device->pages);
    pthread_mutex_destroy(&device->lock);
}

void replay_device_totals(struct replay_device *device, uint64_t *call_count, uint64_t *driver_ns)
{
    pthread_mutex_lock(&device->lock);
    *call_count = device->total_calls;
    *driver_ns = device->driver_ns;
    pthread_mutex_unlock(&device->lock);
}
