/* libgpucache for programs that know of it. C99 or C11, and C++ from C++98 on; needs no CUDA
 * header.
 *
 * A program need not link the library: with GPUCACHE_WANT_LOADER defined, gpucache_load() fills a
 * table of functions with dlsym, from a library that is preloaded, linked or opened by the program;
 * GPUCACHE_NO_PROTOTYPES leaves the declarations away. See examples/.
 *
 * Conventions. Sizes are bytes. Devices are driver ordinals (CUDA_VISIBLE_DEVICES applies, as it
 * does to cuDeviceGet). Streams are CUstream or cudaStream_t values. Functions are thread-safe and
 * keep no pointer they are given. They return a status and write their results only with
 * GPUCACHE_OK, but where they say otherwise. They leave the thread's current context as it was.
 */
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

/* Without a preload (or a link order that is as good: gpucache_get_mode says) the library does not
 * see what the program submits. It then takes every freed block for used until a fence or a wait
 * says otherwise, but for the stream it was freed on. Not seen either: captures on other streams
 * than the one a call names; the reset of a device; work of other devices, so synchronise that
 * before the free. The report at exit is written as ever (GPUCACHE_REPORT). */

/* Rises with every addition to this header. What was there keeps its name, meaning and layout. */
#define GPUCACHE_API_VERSION 3

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
    X(GPUCACHE_DRIVER_ERROR, 11, "the driver refused; gpucache_driver_error() has its code")       \
    X(GPUCACHE_NOT_SUPPORTED, 12, "the device or the driver cannot do this")                       \
    X(GPUCACHE_CAPTURING, 13, "a stream capture is under way")                                     \
    X(GPUCACHE_OUT_OF_RANGE, 14, "the range leaves the pool")                                      \
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

/* Names an elastic pool; 0 names none. Handles are never used again, so a stale or wild one is an
 * error and nothing worse. */
typedef uint64_t gpucache_elastic;

/* Names a tenant; 0 names none. Handles are never used again, as those of pools. */
typedef uint64_t gpucache_tenant;

#define GPUCACHE_NO_LIMIT ((uint64_t)-1)
#define GPUCACHE_ALL_DEVICES (-1)

/* What gpucache_get_mode says. */
#define GPUCACHE_MODE_CACHE 0
#define GPUCACHE_MODE_TRACK 1 /* counts and limits, caches nothing */
#define GPUCACHE_MODE_OFF 2

/* Figures of one device. Set struct_bytes to sizeof(struct gpucache_statistics) before the call;
 * later versions add fields at the end. What threads did before the call is in the figures; two of
 * them may be a moment apart. The peaks of requested and allocated bytes may be off by what several
 * threads did at one time, by 16 MiB each at most. */
struct gpucache_statistics {
    uint64_t struct_bytes;
    uint64_t total_bytes;     /* of the device */
    uint64_t limit_bytes;     /* GPUCACHE_NO_LIMIT: none */
    uint64_t requested_bytes; /* live, as the program asked for it */
    uint64_t requested_peak_bytes;
    uint64_t allocated_bytes; /* live, after rounding */
    uint64_t allocated_peak_bytes;
    uint64_t reserved_bytes; /* from the driver, non-pool memory included; never above the limit */
    uint64_t reserved_peak_bytes;
    uint64_t pending_bytes; /* freed, not yet proven idle */
    uint64_t pending_peak_bytes;
    uint64_t idle_bytes;     /* reserved, and can go back to the driver at once */
    uint64_t elastic_bytes;  /* physical pages of elastic pools: part of reserved */
    uint64_t metadata_bytes; /* host memory the library takes for it */
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
    uint64_t free_bytes;         /* all holes */
    uint64_t largest_free_bytes; /* the largest that serves a request without a driver call */
    uint64_t stitchable_bytes;   /* idle pages that can be mapped side by side for any request */
    double ratio;                /* 1 - largest / free; 0 where nothing is free */
};

/* Figures of one elastic pool; struct_bytes as above. */
struct gpucache_elastic_statistics {
    uint64_t struct_bytes;
    uint64_t capacity_bytes; /* of the address range, in whole pages */
    uint64_t page_bytes;
    uint64_t mapped_bytes; /* what the program may use */
    uint64_t mapped_peak_bytes;
    uint64_t warm_bytes;         /* idle physical pages kept for the next allocate */
    uint64_t free_bytes;         /* addresses not mapped */
    uint64_t largest_free_bytes; /* the longest run of them */
    double fragmentation;        /* 1 - largest free / free; 0 where nothing is free */
    uint64_t allocate_count;     /* calls that succeeded */
    uint64_t deallocate_count;
    uint64_t map_count;    /* pages mapped by the driver: what was not warm in its place */
    uint64_t unmap_count;  /* pages unmapped by the driver */
    uint64_t create_count; /* physical pages taken from the device */
    void *base;            /* first address of the range */
};

/* Figures of one tenant on one device, or their sum over all; struct_bytes as above. Exact; but the
 * peaks of requested and allocated bytes may be off by what several threads did at one time, by
 * 16 MiB each at most. */
struct gpucache_tenant_statistics {
    uint64_t struct_bytes;
    uint64_t capacity_bytes; /* addresses on a device; of all devices: the most of any */
    uint64_t limit_bytes;    /* on each device; GPUCACHE_NO_LIMIT: none */
    uint64_t requested_bytes;
    uint64_t requested_peak_bytes;
    uint64_t allocated_bytes;
    uint64_t allocated_peak_bytes;
    uint64_t reserved_bytes; /* physical memory held; never above the limit */
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

/* What gpucache_elastic_deallocate waits for before the pages may serve something else. */
#define GPUCACHE_WAIT_DEVICE 0 /* all work submitted to the device before the call: always safe */
#define GPUCACHE_WAIT_STREAM                                                                       \
    1                        /* work in `stream` only: the caller says no other uses the range     \
                              */
#define GPUCACHE_WAIT_NONE 2 /* nothing: the caller knows that no work uses the range */

/* For gpucache_cupy_malloc: what `param` may point to. */
struct gpucache_cupy_param {
    gpucache_stream stream; /* where memory is used; the owner may change it between calls */
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
    X(gpucache_status, gpucache_tenant_resume, (gpucache_tenant tenant, uint64_t *moved_bytes))
/* clang-format on */

#ifndef GPUCACHE_NO_PROTOTYPES

/* ---- the library ---- */

/* The library's version, as "1.2.3". Static. Always available. */
const char *gpucache_version(void);
/* The GPUCACHE_API_VERSION it was built with. */
int gpucache_api_version(void);
/* A short text for a status; static, never NULL. */
const char *gpucache_status_text(gpucache_status status);
/* The CUresult behind the calling thread's last GPUCACHE_DRIVER_ERROR. */
int gpucache_driver_error(void);
/* What the library does in this process. *is_interposing: 1 where the program's CUDA calls pass
 * through it (it is preloaded, or stands before CUDA in the link order), 0 where it serves only
 * calls of this header. Either may be NULL. GPUCACHE_NOT_READY before the first CUDA call. */
gpucache_status gpucache_get_mode(int *mode, int *is_interposing);

/* ---- figures and limits: of a device that this process has used; else GPUCACHE_NOT_READY ----
 *
 * None of these starts CUDA. */

/* Makes no driver call, and takes no time that grows with what is allocated; but it holds up the
 * caches of all threads for a moment: not for every allocation. */
gpucache_status gpucache_get_statistics(int device, struct gpucache_statistics *figures);
/* Walks the cache: its time grows with the number of blocks, and allocations wait meanwhile. */
gpucache_status gpucache_get_fragmentation(int device, struct gpucache_fragmentation *figures);
/* Every peak becomes the current value. The report at exit then shows peaks since the last reset.
 */
gpucache_status gpucache_reset_peaks(int device);
/* Gives back to the driver what the cache holds idle, of one device or GPUCACHE_ALL_DEVICES; waits
 * for freed memory that is still pending. *given_bytes may be NULL. Memory of a context that
 * captures stays. */
gpucache_status gpucache_empty_cache(int device, uint64_t *given_bytes);
/* The same, until at most keep_bytes of idle memory remain; waits for nothing. */
gpucache_status gpucache_trim(int device, uint64_t keep_bytes, uint64_t *given_bytes);

/* Takes the physical memory of the process out of its devices: copies it to host memory if
 * `keep_content` is not 0, unmaps it and gives it back; addresses stay. Until gpucache_resume every
 * thread that submits work waits in that call, and so does one whose allocation needs pages. Only
 * mapped memory of the cache goes: plain driver allocations, elastic pools and what the program
 * maps itself stay. `timeout_ms`: what work under way may take to end. *moved_bytes (may be NULL):
 * what the devices have back. From outside: gpucache pause, gpucache resume.
 *
 * PINNED, CAPTURING, BUSY, NO_HOST_MEMORY (for the copy), NOT_SUPPORTED (work may be submitted that
 * the library does not see), DRIVER_ERROR: nothing has changed. PAUSED: it is paused. Without a
 * preload no work is seen: then the program sees to it that none is submitted. */
gpucache_status gpucache_pause(int keep_content, uint32_t timeout_ms, uint64_t *moved_bytes);
/* And back, at the same addresses. OUT_OF_MEMORY: the devices, or a limit, have no room; it is
 * paused as before, or part of it: try again. PAUSED: it is not paused. BUSY, DRIVER_ERROR. */
gpucache_status gpucache_resume(uint64_t *moved_bytes);
/* The hard limit on what this process holds of the device. GPUCACHE_NO_LIMIT: none. */
gpucache_status gpucache_get_limit(int device, uint64_t *limit_bytes);
/* Sets it, at once. Below what is held, idle memory goes back and nothing else is taken away: new
 * allocations fail until less is held. Zero is not a limit (GPUCACHE_INVALID_ARGUMENT). */
gpucache_status gpucache_set_limit(int device, uint64_t limit_bytes);
/* Whether `bytes` could be allocated now, in one or more pieces, and how much could: the smaller of
 * what the limit leaves and what the device has, idle cache counted as free. An answer of the
 * moment: other threads and processes allocate too. Makes a driver call. Either result may be NULL.
 */
gpucache_status gpucache_would_fit(int device, uint64_t bytes, int *fits,
                                   uint64_t *available_bytes);

/* ---- memory in the order of a stream ----
 *
 * These start CUDA where that is needed, and work whatever context is current: in the current one
 * if it is of `device`, else in the device's primary context, which the first such call retains for
 * the life of the process. */

/* `bytes` of device memory for work in `stream`, aligned to 512. Zero bytes: *pointer is NULL and
 * the status GPUCACHE_OK. On failure *pointer is NULL. Also: GPUCACHE_LIMIT_REACHED,
 * GPUCACHE_OUT_OF_MEMORY, both after idle memory was given back. In mode off the driver serves it.
 */
gpucache_status gpucache_malloc(void **pointer, size_t bytes, int device, gpucache_stream stream);
/* Frees it in the order of `stream`: work submitted to `stream` later may get the memory at once,
 * all other work once what was submitted before is done. Never waits in mode cache. Work of other
 * streams that uses it must be ordered before `stream`, or be told of by gpucache_record_stream.
 * Frees what gpucache_malloc and, where the library interposes, cudaMalloc gave. NULL is freed
 * with success. GPUCACHE_INVALID_POINTER: freed already, or not the library's. */
gpucache_status gpucache_free(void *pointer, gpucache_stream stream);
/* The live allocation at `pointer` is used by work of `stream` too: once freed it serves nobody
 * before all work submitted until then is done. Needed once. */
gpucache_status gpucache_record_stream(void *pointer, gpucache_stream stream);

/* ---- elastic pools: a range of addresses, backed page by page as the program says ----
 *
 * For programs that lay out their memory themselves, such as caches of keys and values. Physical
 * pages count against the limit while a pool has them; idle cache gives way to them. A page that is
 * deallocated stays mapped, warm, while the pool has few of these: an allocate of the same place
 * then costs no driver call, one of another place no new physical page. Warm pages count as idle:
 * they go back to the driver when memory is short, when the cache is emptied and when the pool is
 * compacted.
 *
 * Whatever fails leaves a pool as it was. During a capture in the current context or the device's
 * others these are refused with GPUCACHE_CAPTURING, but for the questions. Only the pool's device
 * may use the memory. A process that resets the device destroys its pools first. */

/* Reserves capacity_bytes of addresses (rounded up to whole pages) and no memory. page_bytes: a
 * multiple of 2 MiB (of what the device's own page is), 0 for the smallest. *base (may be NULL) is
 * the first address. GPUCACHE_NOT_SUPPORTED: the device cannot map memory, or mode is off. */
gpucache_status gpucache_elastic_create(int device, uint64_t capacity_bytes, uint64_t page_bytes,
                                        unsigned flags, gpucache_elastic *pool, void **base);
/* Waits for the device, then gives back pages and addresses; the handle is invalid once this
 * succeeds. With GPUCACHE_CAPTURING, or if the wait fails, nothing has changed. If the driver
 * refuses to take something back, nothing is mapped any more and destroy may be called again. */
gpucache_status gpucache_elastic_destroy(gpucache_elastic pool);
/* Backs [offset, offset + bytes) with memory; whole pages. Content is undefined. */
gpucache_status gpucache_elastic_allocate(gpucache_elastic pool, uint64_t offset, uint64_t bytes);
/* Ends the use of whole pages, whatever allocate they came from. `wait`: a GPUCACHE_WAIT_ value;
 * `stream` matters for GPUCACHE_WAIT_STREAM only. */
gpucache_status gpucache_elastic_deallocate(gpucache_elastic pool, uint64_t offset, uint64_t bytes,
                                            int wait, gpucache_stream stream);
/* *is_mapped: 1 if all of [offset, offset + bytes) may be used; any offset and size > 0 inside. */
gpucache_status gpucache_elastic_is_mapped(gpucache_elastic pool, uint64_t offset, uint64_t bytes,
                                           int *is_mapped);
gpucache_status gpucache_elastic_get_statistics(gpucache_elastic pool,
                                                struct gpucache_elastic_statistics *figures);
/* Gives every idle page back to the driver. Moves nothing: what is mapped keeps its address and its
 * memory, and with pages no physical memory is lost between them. *given_bytes may be NULL. */
gpucache_status gpucache_elastic_compact(gpucache_elastic pool, uint64_t *given_bytes);

/* ---- tenants: parts of a program with a limit, addresses and figures of their own ----
 *
 * A tenant is current on the threads that make it so. What they allocate then comes from its own
 * range of addresses, or is charged to it, and counts for the device's limit besides: both hold.
 * Whose a block is, its address says: any thread may use it and free it. docs/tenants.md says which
 * calls are served and what is not told apart. None of these starts CUDA; mode off is
 * GPUCACHE_DISABLED. */

/* `name`: letters, digits, '.', '_' and '-', 63 at most. `capacity_bytes`: addresses on each
 * device, for good; 0: four times what it may hold there at its first use. `limit_bytes`: memory on
 * each device, GPUCACHE_NO_LIMIT: none but the device's. ALREADY_EXISTS; TOO_MANY: 64 at a time;
 * INVALID_ARGUMENT: no such name, a limit of 0, a capacity above 64 TiB. */
gpucache_status gpucache_tenant_register(const char *name, uint64_t capacity_bytes,
                                         uint64_t limit_bytes, gpucache_tenant *tenant);
/* Gives its idle memory and its addresses back; waits for what it freed. BUSY, with nothing
 * changed: it has live allocations, is current on a thread (the calling one too), or is paused.
 * NOT_SUPPORTED: GPUCACHE_TENANTS made it, and it stays. Graphs that were captured with its memory
 * must not run after it: they find no memory where it was. */
gpucache_status gpucache_tenant_unregister(gpucache_tenant tenant);
/* By its name; those of GPUCACHE_TENANTS are there from the start. NOT_FOUND. */
gpucache_status gpucache_tenant_find(const char *name, gpucache_tenant *tenant);
/* Makes it current on the calling thread, in the place of the one that was, whose handle comes back
 * in *previous (may be NULL): set that again at the end of the scope. 0: none; then what
 * GPUCACHE_TENANTS says holds, if anything. A thread that ends lets its tenant go. BUSY: it is
 * being unregistered. INVALID_HANDLE. */
gpucache_status gpucache_tenant_set_current(gpucache_tenant tenant, gpucache_tenant *previous);
/* What was set on the calling thread; 0: nothing. */
gpucache_status gpucache_tenant_get_current(gpucache_tenant *tenant);
/* At once. Below what is held nothing is taken away: new allocations fail until less is held. */
gpucache_status gpucache_tenant_set_limit(gpucache_tenant tenant, uint64_t limit_bytes);
/* Of one device, or GPUCACHE_ALL_DEVICES: the sum. Zeros where it was not used. */
gpucache_status gpucache_tenant_get_statistics(gpucache_tenant tenant, int device,
                                               struct gpucache_tenant_statistics *figures);
/* As gpucache_pause and gpucache_resume, for the memory of one tenant. Until it is resumed threads
 * that have it current, or whose objects GPUCACHE_TENANTS gives it, wait where they submit work or
 * need pages; so does whoever copies or fills by an address of it, or asks about one. All others go
 * on: what their kernels and graphs use is not known, none may use that memory meanwhile. Also
 * PAUSED: it is paused already, about to be unregistered, or was not paused. INVALID_HANDLE. */
gpucache_status gpucache_tenant_pause(gpucache_tenant tenant, int keep_content, uint32_t timeout_ms,
                                      uint64_t *moved_bytes);
gpucache_status gpucache_tenant_resume(gpucache_tenant tenant, uint64_t *moved_bytes);

/* ---- for allocators of others: signatures as they expect them; NULL means out of memory ----
 *
 * They need no preload: PyTorch's CUDAPluggableAllocator takes the path of libgpucache.so and two
 * names, CuPy and RMM take addresses. Failures are logged: PyTorch and CuPy do not look for NULL
 * and fail later, where the memory is used. */

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

/* RMM: callback_memory_resource; its stream view converts to the stream. `device` is NULL for the
 * current context's, or points to an int with the ordinal. RMM wants an exception where there is no
 * memory: see examples/rmm_resource.cpp. */
void *gpucache_rmm_allocate(size_t bytes, gpucache_stream stream, void *device);
void gpucache_rmm_deallocate(void *pointer, size_t bytes, gpucache_stream stream, void *device);

#endif /* GPUCACHE_NO_PROTOTYPES */

/* ---- without linking: a table of the functions ---- */

/* A pointer for each, of the same name; NULL where an older library lacks the function. */
struct gpucache_functions {
#define GPUCACHE_FIELD_(result, name, parameters) result(*name) parameters;
    GPUCACHE_FUNCTIONS(GPUCACHE_FIELD_)
#undef GPUCACHE_FIELD_
};

#ifdef GPUCACHE_WANT_LOADER

/* Fills the table. `library`: what dlopen gave, or NULL for a library that is in the process
 * already, however it came there. GPUCACHE_NO_LIBRARY: it is not, and every pointer is NULL. */
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
        dlclose(scope); /* what gave it stays */
    return table->gpucache_api_version != NULL ? GPUCACHE_OK : GPUCACHE_NO_LIBRARY;
}
#endif

#ifdef __cplusplus
}
#endif

#endif
