/* A simulated platform under core: struct gc_driver over a plain address space. No device; what it
 * keeps is what tests must know:
 *
 *  - capacity: it runs out, and returns SIM_OUT_OF_MEMORY; addresses are reused lowest first;
 *  - work: sim_driver_submit: work queued in a context uses a range; synchronize completes
 * it. Memory that is released, or served to the program again, while such work is queued is a
 * violation;
 *  - rules: a call under one of core's locks, a synchronize while the context captures, a free of
 * what is no allocation or by another context are violations;
 *  - mapped memory (sim_mapping.c): ranges, pages and mappings, each used as the driver demands;
 *  - content (sim_content.c): what was filled or written, by address; else memory holds zeros;
 *  - copies (sim_copy.c): one that is started ends at its wait, and until then the memory at both
 * ends may neither be released nor unpinned;
 *  - failures: the N-th call, once or permanently.
 *
 * Violations are counted and the first one is kept in words; tests end with sim_driver_check.
 * Thread-safe. */
#ifndef SIM_DRIVER_H
#define SIM_DRIVER_H

#include "core/device/driver.h"
#include "core/device/submit.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SIM_OUT_OF_MEMORY 2
#define SIM_NOT_READY 600
#define SIM_CONTEXT_IS_GONE 709
#define SIM_NOT_SUPPORTED 801
#define SIM_BROKEN 999 /* the code of an injected failure */
#define SIM_CONTEXTS 16

enum sim_call {
    SIM_MEM_ALLOC,
    SIM_MEM_FREE,
    SIM_MEM_INFO,
    SIM_SYNCHRONIZE,
    SIM_ADDRESS_RESERVE,
    SIM_ADDRESS_FREE,
    SIM_PAGE_CREATE,
    SIM_PAGE_CREATE_HOST,
    SIM_HOST_ALLOC,
    SIM_HOST_FREE,
    SIM_PAGE_RELEASE,
    SIM_PAGE_MAP,
    SIM_PAGE_SET_ACCESS,
    SIM_PAGE_UNMAP,
    SIM_PAGE_EXPORT,
    SIM_FENCE_RECORD,
    SIM_FENCE_QUERY,
    SIM_FENCE_WAIT,
    SIM_STREAM_FOLLOW,
    SIM_FILL,
    SIM_READ,
    SIM_WRITE,
    SIM_HOST_PIN,
    SIM_HOST_UNPIN,
    SIM_COPY_OUT,
    SIM_COPY_IN,
    SIM_COPY_ACROSS,
    SIM_COPY_WAIT,
    SIM_CALL_COUNT
};

struct sim_allocation {
    uint64_t address;
    uint64_t bytes;
    uint64_t context;
    bool is_host; /* it takes no room on the device */
};

struct sim_use {
    uint64_t address;
    uint64_t bytes;
    uint64_t context;
    uint64_t number; /* in the order of submission */
};

struct sim_fence {
    uint64_t handle;
    uint64_t context;
    uint64_t last_work; /* what it covers of its context */
};

struct sim_range {
    uint64_t address;
    uint64_t bytes;
};

/* A page of physical memory; it takes room until it is released and mapped nowhere. */
struct sim_page {
    uint64_t handle;
    uint64_t bytes;
    uint64_t mapping_count;
    bool is_released;
    bool is_host;     /* it takes no room on the device */
    uint64_t content; /* all that it remembers: the word at its start */
};

struct sim_mapping {
    uint64_t address;
    uint64_t bytes;
    uint64_t handle;
    bool is_accessible;
    uint64_t peers; /* bit d: device d has access too */
};

/* Host memory that is pinned. */
struct sim_pin {
    uint64_t memory;
    uint64_t bytes;
    uint64_t context;
};

/* A copy that was started and is not waited for yet. The content moves at the wait. */
struct sim_copy {
    uint64_t address;
    uint64_t bytes;
    uint64_t host;
    uint64_t to; /* device address that it is copied to; 0: to or from host memory */
    uint64_t context;
    bool is_out;
};

#define SIM_CHUNK_BYTES UINT64_C(65536)

/* The content of some bytes of the address space. */
struct sim_chunk {
    uint64_t address; /* a multiple of its size */
    uint8_t *bytes;
};

struct sim_driver {
    struct gc_driver table;
    pthread_mutex_t lock;
    uint64_t capacity_bytes;
    uint64_t used_bytes;
    uint64_t host_bytes; /* of pages and allocations on the host */
    bool has_no_host_pages;
    uint64_t peak_bytes;
    struct sim_allocation *allocations; /* by address */
    uint64_t allocation_count;
    uint64_t allocation_room;
    struct sim_use *uses; /* queued work */
    uint64_t use_count;
    uint64_t use_room;
    struct sim_range *ranges; /* reserved addresses, by address */
    uint64_t range_count;
    uint64_t range_room;
    struct sim_page *pages; /* by handle */
    uint64_t page_count;
    uint64_t page_room;
    struct sim_mapping *mappings; /* by address */
    uint64_t mapping_count;
    uint64_t mapping_room;
    struct sim_fence *fences; /* not released yet */
    uint64_t fence_count;
    uint64_t fence_room;
    struct sim_chunk *chunks;
    uint64_t chunk_count;
    uint64_t chunk_room;
    struct sim_pin *pins;
    uint64_t pin_count;
    uint64_t pin_room;
    uint64_t pinned_bytes;
    struct sim_copy *copies; /* in the order of their starts */
    uint64_t copy_count;
    uint64_t copy_room;
    uint64_t copied_out_bytes; /* all that were waited for */
    uint64_t copied_in_bytes;
    uint64_t pageable_bytes; /* of these, to or from memory that was not pinned */
    uint64_t next_fence;
    uint64_t last_follower; /* the stream that was made to follow a mark last */
    uint64_t next_work;
    bool has_no_fences;          /* recording returns "not supported" */
    bool has_no_room_for_fences; /* "out of memory" */
    bool is_endless;             /* waits with an end come to it */
    uint64_t wait_ns;            /* how long a wait takes by the clock, if it waits at all */
    bool is_prompt;              /* work is done by the time its fence is asked for */
    struct gc_submissions
        *work; /* of the core: what is submitted is counted there; NULL: it is not */
    uint64_t next_range;
    uint64_t next_handle;
    bool is_capturing[SIM_CONTEXTS]; /* by handle */
    uint64_t calls[SIM_CALL_COUNT];
    uint64_t total_calls;
    uint64_t fail_from; /* call number, from 1; 0: never */
    bool fail_permanently;
    int fail_code;
    uint64_t failed_count; /* injected failures that fired */
    /* Runs at the start of a call, without the lock. */
    void (*hook)(void *argument, enum sim_call call, uint64_t context);
    void *hook_argument;
    atomic_uint_fast64_t clock_ahead_ns; /* of the machine's */
    uint64_t clock_step_ns; /* each reading puts the clock ahead: waits by it are short */
    bool knows_process;     /* as NVML does */
    atomic_uint_fast64_t
        own_bytes; /* taken by the driver for itself; only process_bytes has them */
    void (*during_process)(struct sim_driver *sim); /* called inside process_bytes; NULL: nothing */
    uint64_t violation_count;
    char violation[160];
};

void sim_driver_init(struct sim_driver *sim, uint64_t capacity_bytes);
void sim_driver_fini(struct sim_driver *sim);
/* Work that uses the range is queued in the context. */
void sim_driver_submit(struct sim_driver *sim, uint64_t context, uint64_t address, uint64_t bytes);
/* The range was handed to the program: nothing queued may use the memory behind it, by whatever
 * address, and all of it is there. */
void sim_driver_expect_idle(struct sim_driver *sim, uint64_t address, uint64_t bytes);
void sim_driver_set_capturing(struct sim_driver *sim, uint64_t context, bool capturing);
/* The program synchronises by itself, not through core. */
void sim_driver_complete(struct sim_driver *sim, uint64_t context);
/* The context goes, and with it its allocations and work. */
void sim_driver_drop_context(struct sim_driver *sim, uint64_t context);
/* From the n-th call from now on (1: the next). */
void sim_driver_fail(struct sim_driver *sim, uint64_t n, bool is_permanent, int code);
/* Whether all of the range is mapped and usable. */
bool sim_driver_is_accessible(struct sim_driver *sim, uint64_t address, uint64_t bytes);
/* As above, for a device that is not the memory's own. */
bool sim_driver_is_open_to(struct sim_driver *sim, int device, uint64_t address, uint64_t bytes);

/* Physical memory, as far as it is one piece. */
struct sim_piece {
    uint64_t handle; /* of a page; 0: memory of mem_alloc, which is known by its address */
    uint64_t offset;
    uint64_t bytes;
};
/* The piece behind the start of the range. */
struct sim_piece sim_driver_translate(struct sim_driver *sim, uint64_t address, uint64_t bytes);

/* The mark of the page mapped at `address`; a fresh one 0. */
void sim_driver_put(struct sim_driver *sim, uint64_t address, uint64_t content);
uint64_t sim_driver_get(struct sim_driver *sim, uint64_t address);

/* The program's work writes, and what a byte holds. */
void sim_driver_write(struct sim_driver *sim, uint64_t address, uint64_t bytes, uint8_t value);
uint8_t sim_driver_peek(struct sim_driver *sim, uint64_t address);

/* ---- for sim_mapping.c, sim_fence.c, sim_content.c and sim_copy.c ---- */

/* Starts a call with the lock taken; an injected code, or 0. */
int sim_driver_begin(struct sim_driver *sim, enum sim_call call, uint64_t context);
int sim_driver_end(struct sim_driver *sim, int code);
void sim_driver_violate(struct sim_driver *sim, const char *what, uint64_t address);
bool sim_driver_is_used(const struct sim_driver *sim, uint64_t address, uint64_t bytes);
bool sim_mapping_is_reserved(const struct sim_driver *sim, uint64_t address);
/* `device` -1: its own. */
bool sim_mapping_is_open(const struct sim_driver *sim, uint64_t address, uint64_t bytes,
                         int device);
struct sim_piece sim_mapping_translate(const struct sim_driver *sim, uint64_t address,
                                       uint64_t bytes);
/* Copies of whole mapped pages move the word at the start of each. False, with nothing copied: the
 * range is not such. */
bool sim_mapping_copy_out(struct sim_driver *sim, uint64_t address, uint64_t bytes, void *to);
bool sim_mapping_copy_in(struct sim_driver *sim, uint64_t address, uint64_t bytes,
                         const void *from);
void sim_mapping_init(struct sim_driver *sim);
void sim_mapping_fini(struct sim_driver *sim);
void sim_fence_init(struct sim_driver *sim);
void sim_fence_fini(struct sim_driver *sim);
void sim_content_init(struct sim_driver *sim);
void sim_content_fini(struct sim_driver *sim);
/* Whether a copy under way uses the range of the device's memory. */
bool sim_copy_is_of(const struct sim_driver *sim, uint64_t address, uint64_t bytes);
void sim_copy_init(struct sim_driver *sim);
void sim_copy_fini(struct sim_driver *sim);
void sim_copy_drop_context(struct sim_driver *sim, uint64_t context);
void sim_fence_drop_context(struct sim_driver *sim, uint64_t context);

/* Fails the cmocka test if there was a violation. */
void sim_driver_check(const struct sim_driver *sim);

#endif
