/* Common to the memory files of the simulated driver.
 *
 * Structure: memory_tree.c keeps ranges; memory_space.c owns the address space and the memory file
 * behind it; memory_capacity.c the devices' capacity; memory_table.c the table from address to
 * block; the rest implements the entry points, one family a file.
 *
 * Addresses: all device, managed, pool and reserved addresses lie in windows: large address ranges
 * reserved from the kernel permanently, each backed by one sparse memory file in which offset =
 * address - base. Memory that is not live is inaccessible to the host, so a stale pointer faults.
 * Memory inside a 2 MiB chunk is checked by the table only.
 *
 * Locks, in this order: sim_use_lock (read: a copy or fill is running; write: something is about to
 * be unmapped), then sim_memory_lock (the table, spaces, pools, mappings; short). No function of
 * the engine is called under either. */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create, open-file-description locks; this header comes first */
#endif

#include "memory_tree.h"
#include "tests/simcuda/sim.h"

#define SIM_PAGE (UINT64_C(2) << 20)  /* granularity of capacity and of mapping */
#define SIM_UNIT UINT64_C(512)        /* granularity of small allocations, and the pitch */
#define SIM_SMALL (UINT64_C(1) << 20) /* up to this an allocation shares a chunk */

/* Rounds up; 0 when it does not fit in 64 bits. */
static inline uint64_t sim_round_up(uint64_t bytes, uint64_t unit)
{
    return bytes > UINT64_MAX - unit ? 0 : (bytes + unit - 1) / unit * unit;
}

extern pthread_mutex_t sim_memory_lock;
extern pthread_rwlock_t sim_use_lock;
/* Around what the device does with memory: takes and gives sim_use_lock for reading. */
void sim_use_begin(void);
void sim_use_end(void);

/* ---- address space (memory_space.c); sim_memory_lock held ---- */

/* Takes inaccessible addresses: a multiple of SIM_PAGE. `is_low`: below 4 GiB. */
CUresult sim_space_take(uint64_t bytes, uint64_t alignment, bool is_low, uint64_t *address);
bool sim_space_take_at(uint64_t address, uint64_t bytes);
void sim_space_give(uint64_t address, uint64_t bytes);
/* Makes the memory behind taken addresses accessible; gives it up again. */
CUresult sim_space_commit(uint64_t address, uint64_t bytes);
void sim_space_decommit(uint64_t address, uint64_t bytes);
/* The content behind addresses that were never made accessible (physical memory of a handle). */
void sim_space_discard(uint64_t address, uint64_t bytes);
/* Puts other memory behind taken addresses, and takes it away. */
CUresult sim_space_map(uint64_t address, uint64_t bytes, int fd, uint64_t offset, int protection);
void sim_space_unmap(uint64_t address, uint64_t bytes);
/* A memory file of that size; -1: none. Device memory is no file of the process: its limit of file
 * sizes does not count, as far as it may be raised. */
int sim_space_open_file(const char *name, uint64_t bytes);
CUresult sim_space_protect(uint64_t address, uint64_t bytes, int protection);
bool sim_space_contains(uint64_t address);
/* The file and offset behind an address of a window. */
bool sim_space_backing(uint64_t address, int *fd, uint64_t *offset);

/* ---- the table of blocks (memory_table.c) ---- */

enum sim_kind {
    SIM_PLAIN,      /* cuMemAlloc, cuMemAllocPitch */
    SIM_MANAGED,    /* cuMemAllocManaged */
    SIM_POOLED,     /* cuMemAllocAsync and cuMemAllocFromPoolAsync */
    SIM_GRAPH,      /* memory of a graph's allocation node */
    SIM_IMPORTED,   /* opened from another process */
    SIM_HOST,       /* cuMemHostAlloc, cuMemAllocHost */
    SIM_REGISTERED, /* cuMemHostRegister */
    SIM_VARIABLE,   /* a module's: freed with the module alone */
};

struct sim_pool;

struct sim_block {
    struct sim_node node; /* what the program asked for */
    enum sim_kind kind;
    unsigned flags;              /* host: the flags given; managed: the attachment */
    struct sim_context *context; /* that made it */
    struct sim_device *device;
    struct sim_pool *pool; /* pooled; imported: the pool that it was imported into, or NULL */
    uint64_t id;           /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    uint64_t span;         /* bytes of address space taken at node.start; 0: inside a chunk */
    uint64_t mapped_at;    /* imported: where the span begins */
    uint64_t origin_id;    /* imported: the exporter's process and block */
    uint32_t origin_pid, open_count;
    struct sim_block *next_import;
    bool is_committed; /* graph memory: physical memory is there */
    bool is_used;      /* graph memory: allocated by a launch */
    bool is_orphan;    /* graph memory: the graph is gone */
    struct sim_block *next_graph;
    bool sync_memops;
    bool is_freed;     /* an operation that frees it is under way */
    bool is_anonymous; /* registered: private memory of no file */
    int preferred;     /* managed: CUdevice, CU_DEVICE_CPU, or CU_DEVICE_INVALID */
    int prefetched;
    uint64_t accessed_by; /* managed: bit per device, bit 63 the CPU */
    bool read_mostly;
};

struct sim_block *sim_block_new(enum sim_kind kind, struct sim_context *context);
/* With sim_memory_lock held. */
void sim_block_insert(struct sim_block *block, uint64_t start, uint64_t bytes);
void sim_block_remove(struct sim_block *block);
struct sim_block *sim_block_find(uint64_t address);
/* Gives everything of the block back and frees it; sim_use_lock held for writing too. */
void sim_block_drop_locked(struct sim_block *block);
/* Any block that overlaps, or NULL. */
struct sim_block *sim_block_overlap(uint64_t start, uint64_t end);
uint64_t sim_memory_next_id(void);

/* Whether the range may be touched now. sim_memory_lock held. */
bool sim_range_is_accessible(struct sim_context *context, uint64_t address, uint64_t bytes,
                             bool is_write);

/* ---- device memory (memory_device.c) ---- */

/* Plain device memory of a context. */
CUresult sim_device_alloc(struct sim_context *context, uint64_t bytes, bool is_low,
                          struct sim_block **block);
/* Frees plain memory; sim_use_lock held for writing and sim_memory_lock held. */
void sim_device_free_locked(struct sim_block *block);
void sim_device_drop_context_locked(struct sim_context *context);

/* ---- mappings (memory_vmm.c) and the physical memory they show (memory_physical.c) ---- */

/* The object that a CUmemGenericAllocationHandle names. Lives while handles or mappings refer to
 * it. */
struct sim_physical {
    struct sim_node node; /* [handle, handle + 1) */
    struct sim_physical *next_shared;
    struct sim_device *device; /* NULL: host memory */
    CUmemAllocationProp prop;
    uint64_t bytes;
    uint64_t id;
    uint64_t handle_count;
    uint64_t map_count;
    uint64_t address; /* its place in a window; 0: it has a file of its own */
    int fd;           /* the file of its own, or -1 */
    uint64_t file_device, file_inode;
    bool is_charged;    /* not so when imported */
    bool is_registered; /* by one of its mappings, for GPUDirect RDMA */
};

/* sim_memory_lock held. */
struct sim_physical *sim_physical_find(CUmemGenericAllocationHandle handle);
void sim_physical_backing(const struct sim_physical *physical, int *fd, uint64_t *offset);
/* Frees it if neither handles nor mappings are left. */
void sim_physical_put(struct sim_physical *physical);
/* CUDA_ERROR_INVALID_DEVICE or INVALID_VALUE for a location that does not exist. */
CUresult sim_location_check(const CUmemLocation *location);

enum sim_mapping_answer { SIM_NOT_RESERVED, SIM_ACCESSIBLE, SIM_INACCESSIBLE };
/* The state of a range in the mapping tables; sim_memory_lock held. */
enum sim_mapping_answer sim_mapping_check(const struct sim_context *context, uint64_t address,
                                          uint64_t bytes, bool is_write);
/* sim_check_init, and CUDA_ERROR_NOT_SUPPORTED where devices cannot map memory. */
CUresult sim_check_mapping(void);
/* Hides the mappings of the memory, whose place changes. sim_use_lock and sim_memory_lock held. */
void sim_mapping_hide(const struct sim_physical *physical);
/* Hides mappings from the host if very many are shown. No lock held. */
void sim_mapping_hide_some(void);
struct sim_mapping_info {
    struct sim_physical *physical; /* NULL: reserved only */
    uint64_t start, bytes;
    uint64_t reserved_start, reserved_bytes;
    unsigned access; /* CUmemAccess_flags of the device asked about */
    bool is_mapped;
};
bool sim_mapping_query(uint64_t address, int device_ordinal, struct sim_mapping_info *info);

/* ---- pools (memory_pool.c) ---- */

/* Whether all of the range is memory that a pool holds. sim_memory_lock held. */
bool sim_pool_owns(const struct sim_context *context, uint64_t address, uint64_t bytes,
                   bool is_write);
/* Memory of host pools, which copies reach without the device's access, as any host memory. */
bool sim_pool_owns_on_host(uint64_t address, uint64_t bytes);
/* Frees pool memory behind a position of a stream; NULL: at once. sim_memory_lock held. */
void sim_pool_free_locked(struct sim_block *block, struct sim_stream *stream, uint64_t position);
bool sim_pool_can_decompress(const struct sim_pool *pool); /* sim_memory_lock held */
/* Memory that was imported into the pool is gone. sim_memory_lock held. */
void sim_pool_import_dropped(struct sim_pool *pool);
/* What the pool's memory is. */
bool sim_pool_is_managed(const struct sim_pool *pool);
bool sim_pool_is_host(const struct sim_pool *pool);
CUmemoryPool sim_pool_handle(struct sim_pool *pool);
unsigned sim_pool_handle_types(const struct sim_pool *pool);

/* ---- graph memory (memory_graph.c); sim_use_lock held for writing, sim_memory_lock held ---- */

void sim_graph_block_drop_locked(struct sim_block *block);
/* Freed: its physical memory stays with the device's graphs until trimmed. */
CUresult sim_graph_block_release_locked(struct sim_block *block);

/* ---- memory of other processes (memory_ipc.c); sim_memory_lock held ---- */

void sim_import_forget(struct sim_block *block);

/* ---- arrays (memory_array.c) ---- */

struct sim_surface { /* one array or level: where its texels are */
    uint64_t address;
    uint64_t texel_bytes, row_bytes, rows, slices;
    struct sim_context *context;
};
bool sim_array_surface(CUarray array, struct sim_surface *surface);
void sim_array_drop_context(struct sim_context *context);

/* ---- copies (memory_copy.c) ---- */

/* One side of a copy. Memory: the address of the first byte, pitches in bytes. Array: the first
 * texel. */
struct sim_side {
    uint64_t address;
    uint64_t pitch, slice;
    CUarray array; /* NULL: memory */
    uint64_t x, y, z;
    struct sim_context *context; /* that reaches it; NULL: the one that copies */
};
struct sim_copy {
    struct sim_side from, to;
    uint64_t width, height, depth; /* width in bytes */
};
/* Where and how a call runs: stream of the call, NULL and per_thread as the entry point means it.
 */
struct sim_order {
    bool is_sync;
    bool per_thread;
    CUstream stream;
};

#define SIM_SYNC(thread) ((struct sim_order){.is_sync = true, .per_thread = (thread)})
#define SIM_ASYNC(thread, handle) ((struct sim_order){.per_thread = (thread), .stream = (handle)})
#define SIM_MEMORY(pointer) ((struct sim_side){.address = (pointer)})
#define SIM_HOST_MEMORY(pointer) SIM_MEMORY((uint64_t)(uintptr_t)(pointer))
#define SIM_TEXELS(handle, offset) ((struct sim_side){.array = (handle), .x = (offset)})

CUresult sim_copy_submit(const struct sim_copy *copy, struct sim_order order);
/* The linear case. */
CUresult sim_copy_linear(struct sim_side to, struct sim_side from, uint64_t bytes,
                         struct sim_order order);
/* Reads the program's descriptor, checking it. */
CUresult sim_copy_parse(const CUDA_MEMCPY3D *descriptor, struct sim_copy *copy);
/* True if the memory, when not an array, is on the host / asks for synchronous operations. */
bool sim_side_is_host(const struct sim_side *side);
/* The same without managed memory: what a device reaches over its link. */
bool sim_side_is_far(const struct sim_side *side);
bool sim_side_is_pageable(const struct sim_side *side);
bool sim_side_is_synchronous(const struct sim_side *side);

/* ---- the link to the host (memory_link.c) ---- */

/* When a copy begins that was queued then (sim_link_now_ns; 0: not known), as its stream's worker
 * comes to it. */
uint64_t sim_link_start_ns(uint64_t queued_ns);
/* Returns when so many bytes that begin at `start_ns` have passed. No lock held. */
void sim_link_pass(struct sim_device *device, enum sim_direction direction, uint64_t bytes,
                   bool is_pageable, uint64_t start_ns);

/* ---- copies without holes (memory_sparse.c) ---- */

/* memmove of accessible memory; sim_use_lock held, sim_memory_lock not. */
void sim_sparse_move(uint64_t to, uint64_t from, uint64_t bytes);
/* Whether all of the range is private memory of the process and of no file. */
bool sim_sparse_is_anonymous(uint64_t address, uint64_t bytes);

/* ---- decompression (memory_decompress.c) ---- */

/* CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE. No lock held. */
bool sim_memory_can_decompress(uint64_t address);

/* ---- batches (memory_copy_batch.c) ---- */

/* Whether the program can have a list so long there: a count may be nonsense. */
bool sim_is_list(const void *list, size_t count, size_t element_bytes);

#endif
