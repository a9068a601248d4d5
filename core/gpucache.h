/* The public interface of libgpucache. C99 or C11, and C++ from C++98 on; needs no CUDA header.
 *
 * A program need not link the library: with GPUCACHE_WANT_LOADER defined, gpucache_load() fills a
 * table of functions with dlsym, from a library that is preloaded, linked or opened by the program;
 * GPUCACHE_NO_PROTOTYPES leaves out the declarations. See examples/.
 *
 * Conventions. Sizes are bytes. Devices are driver ordinals (CUDA_VISIBLE_DEVICES applies, as it
 * does to cuDeviceGet). Streams are CUstream or cudaStream_t values. Functions are thread-safe and
 * keep no pointer argument. They return a status and write their results only with GPUCACHE_OK,
 * unless their comment has an exception. They do not change the thread's current context. */
#ifndef GPUCACHE_H
#define GPUCACHE_H

#include <stddef.h>
#include <stdint.h>
#ifdef GPUCACHE_WANT_LOADER
#include <dlfcn.h>
#include <string.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Without a preload (or an equivalent link order: gpucache_get_mode) the library does not see the
 * work that the program submits. A freed block is then in use until a fence or a wait proves
 * otherwise, except for the stream it was freed on. Also unseen: a capture, unless its stream is an
 * argument of a call to the library; the reset of a device; work of other devices: synchronise it
 * before the free. The report at exit is written as usual (GPUCACHE_REPORT). */

/* Rises with every addition to this header. Older parts keep their name, meaning and layout. */
#define GPUCACHE_API_VERSION 4

/* ---- status ---- */

/* X(name, value, text) */
#define GPUCACHE_STATUSES(X)                                                                       \
    X(GPUCACHE_OK, 0, "success")                                                                   \
    X(GPUCACHE_NOT_READY, 1, "CUDA is not initialised, or the device was not used yet")            \
    X(GPUCACHE_DISABLED, 2, "the library only passes calls through (mode off, bad settings)")      \
    X(GPUCACHE_FORKED, 3, "a forked child passes calls through")                                   \
    X(GPUCACHE_INVALID_ARGUMENT, 4, "an argument is NULL, zero or out of its range")               \
    X(GPUCACHE_INVALID_DEVICE, 5, "there is no such device")                                       \
    X(GPUCACHE_INVALID_POINTER, 6, "the address is no live allocation of the library")             \
    X(GPUCACHE_INVALID_HANDLE, 7, "there is no elastic pool or tenant with this handle")           \
    X(GPUCACHE_OUT_OF_MEMORY, 8, "the device has no room")                                         \
    X(GPUCACHE_LIMIT_REACHED, 9, "the limit has no room")                                          \
    X(GPUCACHE_NO_HOST_MEMORY, 10, "no host memory for bookkeeping")                               \
    X(GPUCACHE_DRIVER_ERROR, 11, "a driver call failed; gpucache_driver_error() has its code")     \
    X(GPUCACHE_NOT_SUPPORTED, 12, "the device or the driver cannot do this")                       \
    X(GPUCACHE_CAPTURING, 13, "a stream capture is under way")                                     \
    X(GPUCACHE_OUT_OF_RANGE, 14, "the range leaves the pool or the allocation")                    \
    X(GPUCACHE_MISALIGNED, 15, "offset and size are not whole pages")                              \
    X(GPUCACHE_ALREADY_MAPPED, 16, "some of the range is mapped already")                          \
    X(GPUCACHE_NOT_MAPPED, 17, "some of the range is not mapped")                                  \
    X(GPUCACHE_NO_LIBRARY, 18, "libgpucache is not in this process")                               \
    X(GPUCACHE_PINNED, 19, "the memory cannot be moved: peers, exports, or not mapped")            \
    X(GPUCACHE_BUSY, 20, "it is in use: by work under way, by memory, or by another thread")       \
    X(GPUCACHE_PAUSED, 21, "the process is paused already, or is not")                             \
    X(GPUCACHE_ALREADY_EXISTS, 22, "there is a tenant of this name")                               \
    X(GPUCACHE_TOO_MANY, 23, "there are as many tenants as there may be")                          \
    X(GPUCACHE_NOT_FOUND, 24, "there is no tenant of this name")

typedef enum gpucache_status {
#define GPUCACHE_STATUS_(name, value, text) name = value,
    GPUCACHE_STATUSES(GPUCACHE_STATUS_)
#undef GPUCACHE_STATUS_
        GPUCACHE_STATUS_FORCE_INT = 0x7fffffff /* the type is as wide as an int everywhere */
} gpucache_status;

/* ---- types ---- */

/* A CUstream or cudaStream_t. NULL and 1 are the legacy default stream, 2 is the thread's own. */
typedef void *gpucache_stream;

/* An elastic pool; 0: none. Handles are never reused, so a stale or invalid handle only gives an
 * error. */
typedef uint64_t gpucache_elastic;

/* A tenant; 0: none. Handles are never reused. */
typedef uint64_t gpucache_tenant;

#define GPUCACHE_NO_LIMIT ((uint64_t)-1)
#define GPUCACHE_ALL_DEVICES (-1)

/* Modes of gpucache_get_mode. */
#define GPUCACHE_MODE_CACHE 0
#define GPUCACHE_MODE_TRACK 1 /* counts and limits, caches nothing */
#define GPUCACHE_MODE_OFF 2

/* Figures of one device. Set struct_bytes to sizeof(struct gpucache_statistics) before the call;
 * later versions add fields at the end. The figures include everything before the call; they are
 * not read at one instant. With several threads the peaks of requested and allocated bytes may be
 * off by at most 20 MiB, or 1/64 of the allocated bytes, for each thread. */
struct gpucache_statistics {
    uint64_t struct_bytes;
    uint64_t total_bytes;     /* of the device */
    uint64_t limit_bytes;     /* GPUCACHE_NO_LIMIT: none */
    uint64_t requested_bytes; /* live, as requested by the program */
    uint64_t requested_peak_bytes;
    uint64_t allocated_bytes; /* live, after rounding */
    uint64_t allocated_peak_bytes;
    uint64_t reserved_bytes; /* from the driver, non-pool memory included */
    uint64_t reserved_peak_bytes;
    uint64_t pending_bytes; /* freed, not yet proven idle */
    uint64_t pending_peak_bytes;
    uint64_t idle_bytes;     /* part of reserved that can be released to the driver at once */
    uint64_t elastic_bytes;  /* physical pages of elastic pools: part of reserved */
    uint64_t metadata_bytes; /* the library's host memory for the device */
    uint64_t alloc_count;
    uint64_t free_count;
    uint64_t hit_count;
    uint64_t miss_count;
    uint64_t oom_count;
    uint64_t retry_count;
    uint64_t trim_count;
    uint64_t fence_count;
    uint64_t invalid_free_count;
};

/* Free memory inside the cache of one device; struct_bytes as above. */
struct gpucache_fragmentation {
    uint64_t struct_bytes;
    uint64_t free_bytes;         /* all free blocks */
    uint64_t largest_free_bytes; /* the largest block that needs no driver call */
    uint64_t stitchable_bytes;   /* idle pages that can be mapped side by side for any request */
    double ratio;                /* 1 - largest / free; 0 where nothing is free */
};

/* Figures of one elastic pool; struct_bytes as above. */
struct gpucache_elastic_statistics {
    uint64_t struct_bytes;
    uint64_t capacity_bytes; /* of the address range, in whole pages */
    uint64_t page_bytes;
    uint64_t mapped_bytes; /* in use by the program */
    uint64_t mapped_peak_bytes;
    uint64_t warm_bytes;         /* idle physical pages kept for the next allocate */
    uint64_t free_bytes;         /* addresses not mapped */
    uint64_t largest_free_bytes; /* the longest run of such addresses */
    double fragmentation;        /* 1 - largest free / free; 0 where nothing is free */
    uint64_t allocate_count;     /* calls that succeeded */
    uint64_t deallocate_count;
    uint64_t map_count;    /* pages mapped by the driver: those that were not warm in place */
    uint64_t unmap_count;  /* pages unmapped by the driver */
    uint64_t create_count; /* physical pages created */
    void *base;            /* first address of the range */
};

/* Figures of one tenant on one device, or their sum over all; struct_bytes as above. Exact, except
 * that with several threads the peaks of requested and allocated bytes may be off by at most 20
 * MiB, or 1/64 of the allocated bytes, for each thread. */
struct gpucache_tenant_statistics {
    uint64_t struct_bytes;
    uint64_t capacity_bytes; /* addresses on a device; of all devices: the maximum */
    uint64_t limit_bytes;    /* on each device; GPUCACHE_NO_LIMIT: none */
    uint64_t requested_bytes;
    uint64_t requested_peak_bytes;
    uint64_t allocated_bytes;
    uint64_t allocated_peak_bytes;
    uint64_t reserved_bytes; /* physical memory held; may exceed a lowered limit */
    uint64_t reserved_peak_bytes;
    uint64_t pending_bytes;
    uint64_t idle_bytes;
    uint64_t alloc_count;
    uint64_t free_count;
    uint64_t hit_count;
    uint64_t miss_count;
    uint64_t oom_count;
    uint64_t is_paused;
    void *base; /* first address of its range; NULL: none yet, or no device was named */
};

/* Flags of gpucache_elastic_create. */
#define GPUCACHE_ELASTIC_NO_WARM 1u /* keep no idle physical pages */

/* Waits of gpucache_elastic_deallocate before the pages can be reused. */
#define GPUCACHE_WAIT_DEVICE 0 /* all work submitted to the device before the call: always safe */
#define GPUCACHE_WAIT_STREAM                                                                       \
    1                        /* work in `stream`: the caller ensures that no other uses the range */
#define GPUCACHE_WAIT_NONE 2 /* nothing: the caller ensures that no work uses the range */

/* What gpucache_advise declares. */
#define GPUCACHE_ADVICE_CHANGING 0 /* the content may be written: as before any advice */
#define GPUCACHE_ADVICE_UNCHANGING 1

/* The type of gpucache_cupy_malloc's `param`, if not NULL. */
struct gpucache_cupy_param {
    gpucache_stream stream; /* stream that uses the memory; the owner may change it between calls */
};

/* ---- functions: GPUCACHE_FUNCTIONS(X) has every one, X(result, name, parameters) ---- */

/* clang-format off */
#define GPUCACHE_FUNCTIONS(X)                                                                      \
    X(const char *, gpucache_version, (void))                                                      \
    X(int, gpucache_api_version, (void))                                                           \
    X(const char *, gpucache_status_text, (gpucache_status status))                                \
    X(int, gpucache_driver_error, (void))                                                          \
    X(gpucache_status, gpucache_get_mode, (int *mode, int *is_interposing))                        \
    X(gpucache_status, gpucache_get_statistics, (int device, struct gpucache_statistics *figures)) \
    X(gpucache_status, gpucache_get_fragmentation,                                                 \
      (int device, struct gpucache_fragmentation *figures))                                        \
    X(gpucache_status, gpucache_reset_peaks, (int device))                                         \
    X(gpucache_status, gpucache_empty_cache, (int device, uint64_t *given_bytes))                  \
    X(gpucache_status, gpucache_trim, (int device, uint64_t keep_bytes, uint64_t *given_bytes))    \
    X(gpucache_status, gpucache_get_limit, (int device, uint64_t *limit_bytes))                    \
    X(gpucache_status, gpucache_set_limit, (int device, uint64_t limit_bytes))                     \
    X(gpucache_status, gpucache_would_fit,                                                         \
      (int device, uint64_t bytes, int *fits, uint64_t *available_bytes))                          \
    X(gpucache_status, gpucache_malloc,                                                            \
      (void **pointer, size_t bytes, int device, gpucache_stream stream))                          \
    X(gpucache_status, gpucache_free, (void *pointer, gpucache_stream stream))                     \
    X(gpucache_status, gpucache_record_stream, (void *pointer, gpucache_stream stream))            \
    X(gpucache_status, gpucache_elastic_create,                                                    \
      (int device, uint64_t capacity_bytes, uint64_t page_bytes, unsigned flags,                   \
       gpucache_elastic *pool, void **base))                                                       \
    X(gpucache_status, gpucache_elastic_destroy, (gpucache_elastic pool))                          \
    X(gpucache_status, gpucache_elastic_allocate,                                                  \
      (gpucache_elastic pool, uint64_t offset, uint64_t bytes))                                    \
    X(gpucache_status, gpucache_elastic_deallocate,                                                \
      (gpucache_elastic pool, uint64_t offset, uint64_t bytes, int wait, gpucache_stream stream))  \
    X(gpucache_status, gpucache_elastic_is_mapped,                                                 \
      (gpucache_elastic pool, uint64_t offset, uint64_t bytes, int *is_mapped))                    \
    X(gpucache_status, gpucache_elastic_get_statistics,                                            \
      (gpucache_elastic pool, struct gpucache_elastic_statistics *figures))                        \
    X(gpucache_status, gpucache_elastic_compact, (gpucache_elastic pool, uint64_t *given_bytes))   \
    X(void *, gpucache_torch_malloc, (ptrdiff_t bytes, int device, gpucache_stream stream))        \
    X(void, gpucache_torch_free,                                                                   \
      (void *pointer, ptrdiff_t bytes, int device, gpucache_stream stream))                        \
    X(void, gpucache_torch_record_stream, (void *pointer, gpucache_stream stream))                 \
    X(void, gpucache_torch_reset, (void))                                                          \
    X(void, gpucache_torch_memory_fraction, (double fraction, int device))                         \
    X(void *, gpucache_cupy_malloc, (void *param, size_t bytes, int device))                       \
    X(void, gpucache_cupy_free, (void *param, void *pointer, int device))                          \
    X(void *, gpucache_rmm_allocate, (size_t bytes, gpucache_stream stream, void *device))         \
    X(void, gpucache_rmm_deallocate,                                                               \
      (void *pointer, size_t bytes, gpucache_stream stream, void *device))                                                          \
    X(gpucache_status, gpucache_pause, (int keep_content, uint32_t timeout_ms, uint64_t *moved_bytes)) \
    X(gpucache_status, gpucache_resume, (uint64_t *moved_bytes))                                   \
    X(gpucache_status, gpucache_tenant_register,                                                   \
      (const char *name, uint64_t capacity_bytes, uint64_t limit_bytes, gpucache_tenant *tenant))  \
    X(gpucache_status, gpucache_tenant_unregister, (gpucache_tenant tenant))                       \
    X(gpucache_status, gpucache_tenant_find, (const char *name, gpucache_tenant *tenant))          \
    X(gpucache_status, gpucache_tenant_set_current,                                                \
      (gpucache_tenant tenant, gpucache_tenant *previous))                                         \
    X(gpucache_status, gpucache_tenant_get_current, (gpucache_tenant *tenant))                     \
    X(gpucache_status, gpucache_tenant_set_limit, (gpucache_tenant tenant, uint64_t limit_bytes))  \
    X(gpucache_status, gpucache_tenant_get_statistics,                                             \
      (gpucache_tenant tenant, int device, struct gpucache_tenant_statistics *figures))            \
    X(gpucache_status, gpucache_tenant_pause,                                                      \
      (gpucache_tenant tenant, int keep_content, uint32_t timeout_ms, uint64_t *moved_bytes))      \
    X(gpucache_status, gpucache_tenant_resume, (gpucache_tenant tenant, uint64_t *moved_bytes))    \
    X(gpucache_status, gpucache_advise, (const void *address, size_t bytes, int advice))
/* clang-format on */

#ifndef GPUCACHE_NO_PROTOTYPES

/* ---- the library ---- */

/* The library's version, as "1.2.3". Static. Always available. */
const char *gpucache_version(void);
/* The GPUCACHE_API_VERSION that the library was built with. */
int gpucache_api_version(void);
/* A short text for a status; static, never NULL. */
const char *gpucache_status_text(gpucache_status status);
/* The CUresult of the calling thread's last GPUCACHE_DRIVER_ERROR. */
int gpucache_driver_error(void);
/* The library's mode in this process. *is_interposing: 1 if the program's CUDA calls pass through
 * the library (it is preloaded, or precedes CUDA in the link order), 0 if it serves only calls of
 * this header. Either may be NULL. GPUCACHE_NOT_READY before the first CUDA call. */
gpucache_status gpucache_get_mode(int *mode, int *is_interposing);

/* ---- figures and limits: of a device that this process has used; else GPUCACHE_NOT_READY ----
 *
 * None of these starts CUDA. */

/* Makes no driver call, and its time does not grow with the number of allocations. It stops all
 * thread caches briefly, so do not call it for every allocation. */
gpucache_status gpucache_get_statistics(int device, struct gpucache_statistics *figures);
/* Walks the cache: its time grows with the number of blocks, and allocations wait meanwhile. */
gpucache_status gpucache_get_fragmentation(int device, struct gpucache_fragmentation *figures);
/* Every peak becomes the current value. The report at exit then shows peaks since the last reset.
 */
gpucache_status gpucache_reset_peaks(int device);
/* Releases the cache's idle memory to the driver, of one device or GPUCACHE_ALL_DEVICES; waits for
 * freed memory that is still pending. *given_bytes (may be NULL): the bytes released. Keeps memory
 * of a context that captures. */
gpucache_status gpucache_empty_cache(int device, uint64_t *given_bytes);
/* Releases idle memory until at most keep_bytes of it remain; does not wait. */
gpucache_status gpucache_trim(int device, uint64_t keep_bytes, uint64_t *given_bytes);

/* Swaps the physical memory of the process out of its devices: copies it to host memory if
 * `keep_content` is not 0, unmaps and releases it; addresses stay. Until gpucache_resume every
 * thread that submits work waits in that call, as does a thread whose allocation needs pages. Only
 * mapped memory of the cache is swapped: plain driver allocations, elastic pools and the program's
 * own mappings stay. `timeout_ms`: the longest wait for work under way. *moved_bytes (may be NULL):
 * the bytes released to the devices. From outside: gpucache pause, gpucache resume.
 *
 * PINNED, CAPTURING, BUSY, NO_HOST_MEMORY (for the copy), NOT_SUPPORTED (work may be submitted that
 * the library does not see), DRIVER_ERROR: nothing has changed. PAUSED: the process is paused.
 * Without a preload the library sees no work: the program must ensure that none is submitted. */
gpucache_status gpucache_pause(int keep_content, uint32_t timeout_ms, uint64_t *moved_bytes);
/* Swaps the memory in, at the same addresses. OUT_OF_MEMORY: the devices are full, or a limit would
 * be exceeded; all or part of the memory is still swapped out: try again. PAUSED: the process is
 * not paused. BUSY, DRIVER_ERROR. */
gpucache_status gpucache_resume(uint64_t *moved_bytes);
/* Declares `bytes` from `address` on, all in one live allocation, unchanging (`advice`: a
 * GPUCACHE_ADVICE_ value), such as weights that are loaded: when they leave the device, by a pause
 * or a turn (GPUCACHE_OVERCOMMIT=swap), they are copied once; the copy stays in host memory, part
 * of GPUCACHE_HOST_LIMIT, so that the next time they leave without one. Whole pages of 2 MiB gain
 * from it; declarations of one allocation that touch each other join. It ends with the allocation's
 * free, and with a pause that keeps no content.
 *
 * It is a promise, and nothing checks it: nobody writes to the memory, by kernel, copy, fill or
 * from another process, from this call until one with GPUCACHE_ADVICE_CHANGING for the same bytes.
 * A WRITE IN BETWEEN MAY BE LOST, silently, in the next exchange: older content comes back. Work
 * that was submitted before the call may still write. GPUCACHE_ADVICE_CHANGING is always allowed,
 * for more or less than was declared.
 *
 * No driver call. INVALID_ARGUMENT: no address, no bytes, unknown advice. INVALID_POINTER: not in a
 * live allocation of the cache. OUT_OF_RANGE: beyond its end. NO_HOST_MEMORY: for the record.
 * Without effect, and GPUCACHE_OK, in modes track and off, where memory never leaves. */
gpucache_status gpucache_advise(const void *address, size_t bytes, int advice);
/* The hard limit on this process's reserved memory of the device. GPUCACHE_NO_LIMIT: none. */
gpucache_status gpucache_get_limit(int device, uint64_t *limit_bytes);
/* Sets the limit at once. If more is reserved, idle memory is released, live memory is not:
 * allocations fail until less is reserved. Zero is not a limit (GPUCACHE_INVALID_ARGUMENT). */
gpucache_status gpucache_set_limit(int device, uint64_t limit_bytes);
/* Whether `bytes` could be allocated now, in one or more pieces, and how many bytes could: the
 * lower of the room in the limit and the device's free memory, the idle cache counted as free.
 * Other threads and processes may change the result at any time. Makes a driver call. Either result
 * may be NULL. */
gpucache_status gpucache_would_fit(int device, uint64_t bytes, int *fits,
                                   uint64_t *available_bytes);

/* ---- memory in the order of a stream ----
 *
 * These start CUDA if needed. They use the current context if it is of `device`, else the device's
 * primary context, which the first such call retains for the life of the process. */

/* `bytes` of device memory for work in `stream`, aligned to 512. Zero bytes: *pointer is NULL and
 * the status GPUCACHE_OK. On failure *pointer is NULL. Also: GPUCACHE_LIMIT_REACHED,
 * GPUCACHE_OUT_OF_MEMORY, both after idle memory was released. In mode off: driver memory. */
gpucache_status gpucache_malloc(void **pointer, size_t bytes, int device, gpucache_stream stream);
/* Frees memory in the order of `stream`: later work of `stream` can reuse the memory at once, other
 * work after all work submitted before the free has completed. Never waits in mode cache. Work of
 * other streams that uses the memory must be ordered before `stream`, or recorded by
 * gpucache_record_stream. For memory of gpucache_malloc and, if the library interposes, of
 * cudaMalloc. NULL: success. GPUCACHE_INVALID_POINTER: freed already, or not the library's. */
gpucache_status gpucache_free(void *pointer, gpucache_stream stream);
/* Records that work of `stream`, too, uses the live allocation at `pointer`: after its free the
 * memory is not reused before all work submitted until then has completed. Needed once. */
gpucache_status gpucache_record_stream(void *pointer, gpucache_stream stream);

/* ---- elastic pools: a range of addresses that the program backs page by page ----
 *
 * For programs that lay out their memory themselves, such as KV caches. Physical pages count
 * against the limit while a pool has them; idle cache is released for them. A deallocated page
 * stays mapped (warm) while the pool has few such pages: an allocate at the same place then costs
 * no driver call, an allocate elsewhere no new physical page. Warm pages count as idle: they are
 * released to the driver when memory is short, when the cache is emptied and when the pool is
 * compacted.
 *
 * A call that fails leaves the pool as it was. During a capture in a context of the device all
 * calls but queries fail with GPUCACHE_CAPTURING. Only the pool's device may use the memory. A
 * process that resets the device destroys its pools first. */

/* Reserves capacity_bytes of addresses (rounded up to whole pages) and no memory. page_bytes: a
 * multiple of the device's page size (2 MiB), 0 for the smallest. *base (may be NULL) is
 * the first address. GPUCACHE_NOT_SUPPORTED: the device cannot map memory, or mode is off. */
gpucache_status gpucache_elastic_create(int device, uint64_t capacity_bytes, uint64_t page_bytes,
                                        unsigned flags, gpucache_elastic *pool, void **base);
/* Waits for the device, then releases pages and addresses; the handle is invalid once this
 * succeeds. With GPUCACHE_CAPTURING, or if the wait fails, nothing has changed. If the driver fails
 * to release something, nothing is mapped any more and destroy may be called again. */
gpucache_status gpucache_elastic_destroy(gpucache_elastic pool);
/* Backs [offset, offset + bytes) with memory; whole pages. The content is undefined. */
gpucache_status gpucache_elastic_allocate(gpucache_elastic pool, uint64_t offset, uint64_t bytes);
/* Frees whole pages, whichever allocate backed them. `wait`: a GPUCACHE_WAIT_ value; `stream` is
 * used with GPUCACHE_WAIT_STREAM only. */
gpucache_status gpucache_elastic_deallocate(gpucache_elastic pool, uint64_t offset, uint64_t bytes,
                                            int wait, gpucache_stream stream);
/* *is_mapped: 1 if [offset, offset + bytes) may be used; bytes > 0, not necessarily whole pages. */
gpucache_status gpucache_elastic_is_mapped(gpucache_elastic pool, uint64_t offset, uint64_t bytes,
                                           int *is_mapped);
gpucache_status gpucache_elastic_get_statistics(gpucache_elastic pool,
                                                struct gpucache_elastic_statistics *figures);
/* Releases every cached idle page to the driver. Moves nothing: mapped pages keep their address and
 * memory, and pages leave no unused physical memory between them. *given_bytes (may be NULL): the
 * bytes released. */
gpucache_status gpucache_elastic_compact(gpucache_elastic pool, uint64_t *given_bytes);

/* ---- tenants: parts of a program with a limit, addresses and figures of their own ----
 *
 * A thread makes a tenant current. The thread's allocations then come from the tenant's own range
 * of addresses, or are charged to the tenant, and also count against the device's limit: both hold.
 * A block's address determines its tenant: any thread may use and free it. docs/tenants.md lists
 * the calls that are served and what is not separated. None of these starts CUDA; mode off is
 * GPUCACHE_DISABLED. */

/* `name`: letters, digits, '.', '_' and '-', 63 at most. `capacity_bytes`: addresses on each
 * device, fixed; 0: four times the bytes that it may hold there at its first use. `limit_bytes`:
 * memory on each device, GPUCACHE_NO_LIMIT: only the device's limit. ALREADY_EXISTS; TOO_MANY: 64
 * at a time; INVALID_ARGUMENT: a bad name, a limit of 0, a capacity above 64 TiB. */
gpucache_status gpucache_tenant_register(const char *name, uint64_t capacity_bytes,
                                         uint64_t limit_bytes, gpucache_tenant *tenant);
/* Releases the tenant's idle memory and addresses; waits for its pending frees. BUSY, with nothing
 * changed: the tenant has live allocations, is current on a thread (even the calling one), or is
 * paused. NOT_SUPPORTED: a tenant of GPUCACHE_TENANTS, which stays. Graphs that were captured with
 * its memory must not run afterwards: that memory is unmapped. */
gpucache_status gpucache_tenant_unregister(gpucache_tenant tenant);
/* Finds a tenant by name; those of GPUCACHE_TENANTS exist from the start. NOT_FOUND. */
gpucache_status gpucache_tenant_find(const char *name, gpucache_tenant *tenant);
/* Makes the tenant current on the calling thread; 0: none, and the rules of GPUCACHE_TENANTS, if
 * any, apply. *previous (may be NULL) is the former tenant's handle: set it again at the end of the
 * scope. A thread that ends has no current tenant any more. BUSY: the tenant is being unregistered.
 * INVALID_HANDLE. */
gpucache_status gpucache_tenant_set_current(gpucache_tenant tenant, gpucache_tenant *previous);
/* The calling thread's current tenant; 0: none. */
gpucache_status gpucache_tenant_get_current(gpucache_tenant *tenant);
/* At once, revoking nothing: allocations fail until less is reserved than the limit. */
gpucache_status gpucache_tenant_set_limit(gpucache_tenant tenant, uint64_t limit_bytes);
/* Figures of one device, or with GPUCACHE_ALL_DEVICES their sum. Zeros for unused devices. */
gpucache_status gpucache_tenant_get_statistics(gpucache_tenant tenant, int device,
                                               struct gpucache_tenant_statistics *figures);
/* As gpucache_pause and gpucache_resume, for the memory of one tenant. Until the resume a thread
 * waits when it submits work or needs pages if the tenant is current on it or GPUCACHE_TENANTS
 * assigns the object to the tenant, and when it copies, fills or queries an address of the tenant.
 * Other threads go on: the library does not know the memory that their kernels and graphs use, so
 * these must not use the tenant's memory. PAUSED also: the tenant is paused already, being
 * unregistered, or not paused. INVALID_HANDLE. */
gpucache_status gpucache_tenant_pause(gpucache_tenant tenant, int keep_content, uint32_t timeout_ms,
                                      uint64_t *moved_bytes);
gpucache_status gpucache_tenant_resume(gpucache_tenant tenant, uint64_t *moved_bytes);

/* ---- for PyTorch, CuPy and RMM, with the signatures of each; NULL means out of memory ----
 *
 * The functions need no preload: PyTorch's CUDAPluggableAllocator takes the path of libgpucache.so
 * and two names, CuPy and RMM take addresses. Failures are logged: PyTorch and CuPy do not check
 * for NULL and fail later, where the memory is used. */

/* PyTorch: torch.cuda.memory.CUDAPluggableAllocator(path, "gpucache_torch_malloc",
 * "gpucache_torch_free"). ptrdiff_t is ssize_t. Zero or negative sizes give NULL. */
void *gpucache_torch_malloc(ptrdiff_t bytes, int device, gpucache_stream stream);
void gpucache_torch_free(void *pointer, ptrdiff_t bytes, int device, gpucache_stream stream);
/* For set_record_stream_fn, set_reset_fn (torch.cuda.empty_cache) and set_memory_fraction_fn. */
void gpucache_torch_record_stream(void *pointer, gpucache_stream stream);
void gpucache_torch_reset(void);
void gpucache_torch_memory_fraction(double fraction, int device);

/* CuPy: CFunctionAllocator(param, malloc, free, owner). `param` is NULL, and then frees are ordered
 * after all streams, or the address of a struct gpucache_cupy_param. */
void *gpucache_cupy_malloc(void *param, size_t bytes, int device);
void gpucache_cupy_free(void *param, void *pointer, int device);

/* RMM: callback_memory_resource; its stream view converts to the stream. `device` points to an int
 * with the ordinal; NULL: the current context's device. RMM expects an exception when out of
 * memory: see examples/rmm_resource.cpp. */
void *gpucache_rmm_allocate(size_t bytes, gpucache_stream stream, void *device);
void gpucache_rmm_deallocate(void *pointer, size_t bytes, gpucache_stream stream, void *device);

#endif /* GPUCACHE_NO_PROTOTYPES */

/* ---- without linking: a table of the functions ---- */

/* A pointer to each function, under its name; NULL: the library is older and lacks it. */
struct gpucache_functions {
#define GPUCACHE_FIELD_(result, name, parameters) result(*name) parameters;
    GPUCACHE_FUNCTIONS(GPUCACHE_FIELD_)
#undef GPUCACHE_FIELD_
};

#ifdef GPUCACHE_WANT_LOADER

/* Fills the table. `library`: a handle of dlopen, or NULL for a library that is already loaded.
 * GPUCACHE_NO_LIBRARY: the library is not loaded, and every pointer is NULL. */
static inline gpucache_status gpucache_load(void *library, struct gpucache_functions *table)
{
    void *scope = library != NULL ? library : dlopen(NULL, RTLD_LAZY);
    void *found;
    memset(table, 0, sizeof(*table));
    if (library == NULL && scope != NULL && dlsym(scope, "gpucache_api_version") == NULL) {
        dlclose(scope);
        scope = dlopen("libgpucache.so.0", RTLD_LAZY | RTLD_NOLOAD);
        if (scope == NULL)
            scope = dlopen("libgpucache.so", RTLD_LAZY | RTLD_NOLOAD);
    }
    if (scope == NULL)
        return GPUCACHE_NO_LIBRARY;
        /* Copied: ISO C has no cast from an object's address to a function's. */
#define GPUCACHE_LOAD_(result, name, parameters)                                                   \
    found = dlsym(scope, #name);                                                                   \
    memcpy(&table->name, &found, sizeof(found));
    GPUCACHE_FUNCTIONS(GPUCACHE_LOAD_)
#undef GPUCACHE_LOAD_
    if (library == NULL)
        dlclose(scope); /* the library stays loaded */
    return table->gpucache_api_version != NULL ? GPUCACHE_OK : GPUCACHE_NO_LIBRARY;
}
#endif

#ifdef __cplusplus
}
#endif

#endif
