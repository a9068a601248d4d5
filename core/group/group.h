/* The process as a client of the ledger: its slot, the requests that other processes send to it,
 * and the account of its group on each device. A group limits the sum of its processes' memory, as
 * a memory cgroup does.
 *
 * One thread at a time serves requests (serve.c): the helper thread, which processes with a group
 * have, or a thread that allocates. Whichever comes first applies a new limit; all other requests
 * are left to the helper if there is one. Without a ledger every function does nothing. */
#ifndef GC_GROUP_H
#define GC_GROUP_H

#include "core/core.h"
#include "core/device/registry.h"
#include "core/ledger/account.h"
#include "core/ledger/ledger.h"

#include <stddef.h>

/* Serves one kind of request. `tenant`: "" means the process; `drop`: a pause may lose the content
 * of the memory; `text`: the result or the reason of a refusal, GC_LEDGER_RESPONSE_BYTES long. */
typedef enum gc_ledger_result gc_request_function(void *argument, enum gc_ledger_request_kind kind,
                                                  const char *tenant, bool drop, char *text);

/* The helper's step between requests: returns after how many milliseconds it wants the next. */
typedef uint32_t gc_serve_step_function(struct gc_core *core);

struct gc_group_client {
    struct gc_ledger ledger; /* the first member: gc_core.ledger points to it */
    struct gc_core *core;
    struct gc_doorbell *doorbell;
    bool has_group;
    atomic_bool is_serving;
    atomic_flag loss_logged;
    atomic_flag removal_logged;
    atomic_flag fixed_logged;
    atomic_flag guarantee_logged;
    /* Limits requested for devices that are not added yet; bit i of the mask: row i. */
    _Atomic uint64_t late_mask;
    _Atomic uint64_t late_limits[GC_LEDGER_DEVICES];
    gc_serve_step_function *step; /* NULL: none */
    /* Bytes of each device row that threads wait for; bit i of the mask: nobody gives such. */
    _Atomic uint64_t wanted[GC_LEDGER_DEVICES];
    _Atomic uint64_t hopeless_mask;
    _Atomic uint64_t vain_ns; /* when a wait for others' idle memory last ended in vain; 0: never */
    struct gc_request_handler {
        gc_request_function *_Atomic function;
        void *argument;
    } handlers[GC_REQUEST_COUNT];
};

_Static_assert(offsetof(struct gc_group_client, ledger) == 0, "gc_group_client_of");

/* NULL: not joined. */
static inline struct gc_group_client *gc_group_client_of(const struct gc_core *core)
{
    return (struct gc_group_client *)core->ledger;
}

/* As gc_core_join. */
void gc_group_join(struct gc_core *core, const char *program, struct gc_doorbell *doorbell);
/* For a new device: finds its row, opens the group's account on it, sets the group's limit. Call
 * before memory is reserved on the device. */
void gc_group_attach(struct gc_core *core, struct gc_device *device);
/* Applies GPUCACHE_GUARANTEE, again after the group's limit has changed. */
void gc_group_guarantee(struct gc_device *device);
/* Serves pending requests. False: there are none, or another thread serves. No lock may be held. */
bool gc_group_serve(struct gc_core *core);
/* Registers the function that serves a kind of request. Does nothing without a ledger. */
void gc_serve_register(struct gc_core *core, enum gc_ledger_request_kind kind,
                       gc_request_function *function, void *argument);
/* For a thread that waits, where no helper runs: makes the helper's step, unless another thread
 * does. May call the driver; no lock may be held. */
void gc_serve_step(struct gc_core *core);
/* Call before the helper starts. */
void gc_serve_set_step(struct gc_core *core, gc_serve_step_function *step);
/* The row of the process's group. */
uint32_t gc_group_row(const struct gc_core *core);
/* Frees the client and its slot. */
void gc_group_fini(struct gc_core *core);

/* ---- memory from other processes: borrow.c ---- */

/* The state of one request that lacks memory; all zero at first. */
struct gc_borrow {
    uint64_t end_ns;          /* the deadline */
    uint64_t requested_ns;    /* when requests were last sent */
    uint64_t wanted;          /* announced to the helper */
    unsigned count;           /* steps so far */
    unsigned room_count;      /* steps that found room, in a turn */
    bool is_short;            /* does not wait */
    bool awaits_idle;         /* idle memory of others would do: the wait is for it, too */
    struct gc_tenant *tenant; /* for which it is; NULL: none */
    bool is_fixed;            /* memory that cannot go again: a context, an array */
};

/* Call when reclaim in this process did not free `bytes`. Uncharges memory of processes that died,
 * requests idle memory from other processes of the group and waits, at most GPUCACHE_WAIT, or
 * longer if a process is dying or idle memory that would do is announced (100 ms); where the
 * process takes turns, then for its turn, as long as there is hope. True: try the charge again. No
 * lock may be held. */
bool gc_borrow_step(struct gc_device *device, uint64_t bytes, struct gc_borrow *borrow);
/* Call after the last step, whatever came of it. */
void gc_borrow_end(struct gc_device *device, const struct gc_borrow *borrow);

/* Requests idle memory of the group's other processes. Returns what they have, as published. */
uint64_t gc_borrow_request(struct gc_device *device, uint64_t bytes);
/* What the group's other processes have of it. */
uint64_t gc_borrow_idle(const struct gc_device *device);

/* ---- turns: what threads wait for, for core/turns ---- */

static inline uint64_t gc_group_wanted(const struct gc_group_client *client, uint32_t row)
{
    return atomic_load_explicit(&client->wanted[row], memory_order_seq_cst);
}

static inline bool gc_group_is_hopeless(const struct gc_group_client *client, uint32_t row)
{
    return (atomic_load_explicit(&client->hopeless_mask, memory_order_relaxed) >> row & 1) != 0;
}

static inline void gc_group_set_hopeless(struct gc_group_client *client, uint32_t row, bool is_it)
{
    if (is_it)
        atomic_fetch_or_explicit(&client->hopeless_mask, UINT64_C(1) << row, memory_order_relaxed);
    else if (gc_group_is_hopeless(client, row))
        atomic_fetch_and_explicit(&client->hopeless_mask, ~(UINT64_C(1) << row),
                                  memory_order_relaxed);
}

#endif
