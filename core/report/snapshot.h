/* A copy of all figures, for the report and the public API. Each number is exact, but the numbers
 * are not read at one instant. */
#ifndef GC_SNAPSHOT_H
#define GC_SNAPSHOT_H

#include "core/base/histogram.h"
#include "core/core.h"
#include "core/follow/follow_figures.h"
#include "core/ledger/ledger.h"
#include "core/observe/spills.h"
#include "core/observe/stats.h"

struct gc_tenant_figures; /* core/device/tenant.h */

struct gc_device_snapshot {
    struct gc_device_info info;
    bool is_mapped;             /* its memory is mapped, not driver allocations */
    uint64_t limit_bytes;       /* UINT64_MAX: none; of the process alone */
    char group[64];             /* the group that is charged, too; "": none */
    uint64_t group_limit_bytes; /* UINT64_MAX: none */
#define GC_GAUGE(field, text) struct gc_gauge field;
#define GC_COUNTER(field, text) uint64_t field;
#include "core/observe/stats.def"
#undef GC_GAUGE
#undef GC_COUNTER
    uint64_t refused_bytes;    /* of the largest request that was refused */
    uint64_t sufficient_bytes; /* the least limit that had room for each refused request */
    uint64_t host_metadata_bytes;
    uint64_t idle_bytes;         /* can be released at once; part of reserved */
    uint64_t free_bytes;         /* all free memory of the pools that has pages */
    uint64_t largest_free_bytes; /* the largest free block that needs no driver call */
    uint64_t stitchable_bytes;   /* idle pages: they serve any request, wherever they are */
    uint64_t stuck_bytes;        /* free pages of handles in use: they serve where they are */
    uint64_t direct_bytes[GC_DIRECT_KIND_COUNT];
    uint64_t leak_count; /* live blocks and direct records now */
    uint64_t leak_bytes;
    struct gc_api_figures *apis; /* api_count entries, owned by the snapshot */
    struct gc_follow_figures plan;
    /* Tenants that used the device: present ones, then removed ones, GC_TENANT_MAX at most. */
    uint32_t tenant_count;
    struct gc_tenant_figures *tenants; /* owned by the snapshot */
};

struct gc_snapshot {
    uint16_t api_count;
    uint32_t device_count;
    struct gc_device_snapshot *devices;
    uint64_t *process_driver_calls; /* api_count entries: calls that belong to no device */
    bool takes_turns;
    struct gc_ledger_turn turn;      /* as it was at the snapshot */
    struct gc_latency alloc_latency; /* of gc_alloc and gc_free that succeeded */
    struct gc_latency free_latency;
};

/* The figures of one device, without those of entry points, free blocks and live blocks: cheap. */
void gc_snapshot_read_device(struct gc_core *core, struct gc_device *device,
                             struct gc_device_snapshot *figures);
/* Fills in the figures of free blocks. Walks the pools if memory is mapped. */
void gc_snapshot_read_free_blocks(struct gc_core *core, struct gc_device *device,
                                  struct gc_device_snapshot *figures);
/* The peaks of the device's gauges, of its entry points too, become their current values. */
void gc_snapshot_reset_peaks(struct gc_core *core, struct gc_device *device);

enum gc_status gc_snapshot_take(struct gc_core *core, struct gc_snapshot **snapshot) GC_CHECKED;
void gc_snapshot_free(struct gc_snapshot *snapshot);

/* Copies the listed blocks in host memory of a device, at most `max`, by time. Returns their
 * number. */
uint32_t gc_snapshot_read_spills(struct gc_core *core, int ordinal, struct gc_spilled *to,
                                 uint32_t max);

struct gc_leak {
    uint64_t address; /* or handle */
    uint64_t bytes;
    uint16_t api;
    bool direct;
    enum gc_direct_kind kind; /* if direct */
    uint32_t site;            /* of gc_core_stacks; 0: unknown */
};

/* Calls `visit` for each live allocation of the device, largest first, at most `max`. Takes no lock
 * while visiting. */
enum gc_status gc_snapshot_visit_leaks(struct gc_core *core, struct gc_device *device, uint32_t max,
                                       void (*visit)(void *argument, const struct gc_leak *leak),
                                       void *argument) GC_CHECKED;

/* Leaks of one call site and entry point; without a call stack, of one entry point and size. */
struct gc_leak_group {
    uint64_t count; /* 0: an empty slot of a table */
    uint64_t bytes;
    uint64_t largest_bytes;
    uint64_t address; /* or handle, of the largest */
    uint32_t site;    /* as in struct gc_leak */
    uint16_t api;
};

/* A hash table of groups, in the caller's memory. */
struct gc_leak_table {
    struct gc_leak_group *slots; /* zeroed */
    uint32_t slot_count;         /* a power of two, at least 4 */
    uint32_t used;
};

/* Adds a leak to its group; a new group in a table that is three quarters full is left out. */
void gc_leak_table_add(struct gc_leak_table *table, const struct gc_leak *leak);
/* Moves the groups to the first slots, those of the most bytes first; returns their number. The
 * table takes no more leaks. */
uint32_t gc_leak_table_sort(struct gc_leak_table *table);

/* Groups all live allocations of the device and copies the groups of the most bytes, at most `max`,
 * those first. */
enum gc_status gc_snapshot_group_leaks(struct gc_core *core, struct gc_device *device,
                                       struct gc_leak_group *groups, uint32_t max,
                                       uint32_t *count) GC_CHECKED;

#endif
