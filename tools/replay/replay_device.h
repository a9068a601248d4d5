/* A device for replaying traces: a struct gc_driver over an address space without memory.
 *
 * It models everything that decides a replay: bytes held against a capacity, the mapping of pages,
 * and the number of calls by kind and their time. Work completes when it is submitted, so fences
 * are always complete. Calls that a driver would refuse (a page mapped over another, a free of an
 * unknown address) are refused and counted as faults.
 *
 * A plain allocation above 1 MiB takes whole pages, as cudaMalloc's does. Times are those of
 * vAttention (2405.04437) on an A100; access and unmapping cost by the handle, memory by its size.
 *
 * Freed address ranges are reused by size before new ones are created. Thread-safe. */
#ifndef GC_REPLAY_DEVICE_H
#define GC_REPLAY_DEVICE_H

#include "core/device/driver.h"
#include "tools/trace/trace_ledger.h"

#include <pthread.h>

#define REPLAY_PAGE_BYTES (UINT64_C(2) << 20)

/* REPLAY_CALL(name, text, us): the counted calls, one for each function of struct gc_driver except
 * its clock, and the modelled time of one, by the handle where it names several. Calls that neither
 * take nor give memory take no time. */
#define REPLAY_CALLS(REPLAY_CALL)                                                                  \
    REPLAY_CALL(ALLOC, "mem_alloc", 60)                                                            \
    REPLAY_CALL(FREE, "mem_free", 60)                                                              \
    REPLAY_CALL(INFO, "mem_info", 0)                                                               \
    REPLAY_CALL(SYNCHRONIZE, "synchronize", 0)                                                     \
    REPLAY_CALL(FENCE_RECORD, "fence_record", 0)                                                   \
    REPLAY_CALL(FENCE_QUERY, "fence_query", 0)                                                     \
    REPLAY_CALL(FENCE_WAIT, "fence_wait", 0)                                                       \
    REPLAY_CALL(ADDRESS_RESERVE, "address_reserve", 0)                                             \
    REPLAY_CALL(ADDRESS_FREE, "address_free", 0)                                                   \
    REPLAY_CALL(PAGE_CREATE, "page_create", 29)                                                    \
    REPLAY_CALL(PAGE_RELEASE, "page_release", 23)                                                  \
    REPLAY_CALL(PAGE_MAP, "page_map", 2)                                                           \
    REPLAY_CALL(PAGE_SET_ACCESS, "page_set_access", 38)                                            \
    REPLAY_CALL(PAGE_UNMAP, "page_unmap", 34)                                                      \
    REPLAY_CALL(FILL, "fill", 0)                                                                   \
    REPLAY_CALL(READ, "read", 0)                                                                   \
    REPLAY_CALL(WRITE, "write", 0)
#define REPLAY_NS_PER_GIB 350000 /* of memory created or allocated */

enum replay_call {
#define REPLAY_CALL(name, text, us) REPLAY_CALL_##name,
    REPLAY_CALLS(REPLAY_CALL)
#undef REPLAY_CALL
        REPLAY_CALL_COUNT
};

struct replay_page {
    uint64_t bytes;
    uint64_t map_count;
    bool is_released; /* released by the caller, alive while it is mapped */
};

struct replay_range {
    uint64_t address;
    size_t next; /* index + 1 of the next free range of its size */
};

struct replay_device {
    struct gc_driver table;
    pthread_mutex_t lock; /* guards all below */
    uint64_t capacity_bytes;
    uint64_t held_bytes; /* physical bytes */
    uint64_t peak_bytes;
    uint64_t next_address;           /* above all ranges used so far */
    struct trace_ledger ranges;      /* used ranges: address → bytes */
    struct trace_ledger free_ranges; /* size → index + 1 of the first free one */
    struct replay_range *free_nodes;
    size_t free_node_count;
    size_t free_node_room;
    size_t spare_nodes;         /* index + 1 of an unused node */
    struct trace_ledger mapped; /* page address → handle */
    struct replay_page *pages;  /* handle - 1 */
    size_t page_count;
    size_t page_room;
    uint64_t calls[REPLAY_CALL_COUNT];
    uint64_t total_calls;
    uint64_t driver_ns;    /* modelled */
    uint64_t handle_count; /* physical handles and plain allocations */
    uint64_t peak_handle_count;
    uint64_t fault_count;
    const char *first_fault; /* static text */
};

void replay_device_init(struct replay_device *device, uint64_t capacity_bytes);
void replay_device_fini(struct replay_device *device);
void replay_device_totals(struct replay_device *device, uint64_t *call_count, uint64_t *driver_ns);
const char *replay_call_name(enum replay_call call);

#endif
