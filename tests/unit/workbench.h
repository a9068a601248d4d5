/* A core over a simulated driver, for tests: one device, a few contexts, short ways to allocate and
 * free, and a check that all accounts agree with each other and with the driver. */
#ifndef WORKBENCH_H
#define WORKBENCH_H

#include "core/config/options.h"
#include "core/core.h"
#include "core/report/snapshot.h"
#include "tests/unit/sim_driver.h"

#define WORKBENCH_CONTEXTS 3

enum workbench_api { API_MALLOC, API_OTHER, WORKBENCH_API_COUNT };

struct workbench_setup {
    enum gc_mode mode;
    uint64_t capacity_bytes;
    uint64_t limit_bytes;       /* 0: none */
    uint64_t leave_bytes;       /* GPUCACHE_LEAVE */
    double trim_percent;        /* of 100 */
    bool has_mapping;           /* in pages of 2 MiB, or of page_bytes */
    uint64_t page_bytes;        /* 0: 2 MiB */
    bool is_fenced;             /* reuse `fence`, else `sync` */
    unsigned debug;             /* of GC_DEBUG_ */
    struct gc_log *log;         /* NULL: none */
    bool is_dedicated;          /* every block a driver allocation of its own */
    const struct gc_plan *plan; /* NULL: none is followed */
    unsigned overcommit;        /* of GC_OVERCOMMIT_ */
    uint64_t host_limit_bytes;  /* GPUCACHE_HOST_LIMIT; 0: none given */
    double host_limit_percent;  /* the same, of the machine */
    const char *ledger;         /* the folder of the ledger that it joins; NULL: none */
    const char *group;          /* GPUCACHE_GROUP; NULL: none */
};

struct workbench {
    struct sim_driver sim;
    struct gc_options *options;
    struct gc_doorbell doorbell;
    struct gc_core *core;
    struct gc_device *device;
    struct gc_context *contexts[WORKBENCH_CONTEXTS]; /* handles 1, 2, … */
    struct gc_tcache *cache; /* of the thread that opened it; only the pool's hits use it */
    pthread_t owner;
    int driver_code;              /* of the last call */
    uint64_t elastic_idle_bytes;  /* what elastic pools hold idle, for workbench_check */
    uint64_t tenant_direct_bytes; /* what each tenant has taken by other ways than its pools */
    uint64_t tenant_limit_bytes;  /* of each, and was never exceeded */
    uint64_t stuck_host_bytes;    /* of no block: the driver did not take them back */
    uint64_t stuck_bytes;         /* charged to no pool: what a context left behind */
};

void workbench_open(struct workbench *bench, const struct workbench_setup *setup);
/* A cached one of 1 GiB without a limit. */
void workbench_open_plain(struct workbench *bench);
/* A cached one of 512 MiB with a limit. */
void workbench_open_limited(struct workbench *bench, uint64_t limit_bytes);
/* A cached one without a limit, whose memory is used again by fences. */
void workbench_open_fenced(struct workbench *bench, uint64_t capacity_bytes);
/* Checks and destroys. */
void workbench_close(struct workbench *bench);
/* Every invariant, and that nothing was done that the driver forbids. */
void workbench_check(struct workbench *bench);

/* The cache, in the thread that opened the workbench; in others NULL. */
struct gc_tcache *workbench_cache(const struct workbench *bench);
/* As the shim does: a hit in the bins, or else the whole path. Frees too. */
enum gc_status workbench_try_alloc(struct workbench *bench, unsigned context, uint64_t bytes,
                                   uint64_t *address);
/* As above, for a record of a tenant's. */
enum gc_status workbench_try_alloc_in(struct workbench *bench, struct gc_context *record,
                                      uint64_t bytes, uint64_t *address);
/* Must succeed, as must the next two. */
uint64_t workbench_alloc_in(struct workbench *bench, struct gc_context *record, uint64_t bytes);
struct gc_tenant *workbench_add_tenant(struct workbench *bench, const char *name,
                                       uint64_t capacity_bytes, uint64_t limit_bytes);
/* The tenant's record beside one of the contexts. */
struct gc_context *workbench_record(struct workbench *bench, struct gc_tenant *tenant,
                                    unsigned context);
/* A whole segment; must succeed, as must the next. */
uint64_t workbench_alloc_whole(struct workbench *bench, unsigned context, uint64_t bytes);
void workbench_export(struct workbench *bench, uint64_t address);
/* Must succeed. */
uint64_t workbench_alloc(struct workbench *bench, unsigned context, uint64_t bytes);
enum gc_status workbench_try_free(struct workbench *bench, uint64_t address);
/* In the order of a stream, of none that is named. */
uint64_t workbench_alloc_ordered(struct workbench *bench, struct gc_context *record,
                                 uint64_t bytes);
void workbench_free(struct workbench *bench, uint64_t address);
/* Allocates in the first context and frees while work of the context `handle` on it is queued. */
uint64_t workbench_free_busy(struct workbench *bench, uint64_t handle, uint64_t bytes);
/* All work of the first context is done, and core hears of it. */
void workbench_retire(struct workbench *bench);
/* A copy of the device's figures; `apis` is NULL in it. */
struct gc_device_snapshot workbench_figures(struct workbench *bench);
struct gc_api_figures workbench_api_figures(struct workbench *bench, enum workbench_api api);
void workbench_capture(struct workbench *bench, unsigned context, bool begin);
/* The driver drops the context, then core hears of it. */
void workbench_drop(struct workbench *bench, unsigned context);

/* As if the process had one context and had used no second stream yet. */
void workbench_pretend_one_stream(struct workbench *bench);

#define assert_status(status, expected) assert_int_equal((int)(status), (int)(expected))

#endif
