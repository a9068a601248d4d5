/* This process's place in the ledger: what it tells there, what others ask of it, and the account
 * of its group on each device.
 *
 * Requests are served in one place, by one thread at a time: the helper, which exists in processes
 * with a group, or a thread that allocates. A new limit is taken by whichever comes first, all else
 * by the helper where there is one. Without a ledger everything here does nothing. */
#ifndef GC_GROUP_H
#define GC_GROUP_H

#include "core/core.h"
#include "core/ledger/account.h"
#include "core/ledger/ledger.h"

/* Answers one kind of request. `tenant`: "" means the process; `drop`: what a pause takes away need
 * not survive; `text`: what was done, or why not, GC_LEDGER_RESPONSE_BYTES long. */
typedef enum gc_ledger_result gc_request_function(void *argument, enum gc_ledger_request_kind kind,
                                                  const char *tenant, bool drop, char *text);

struct gc_group_client {
    struct gc_core *core;
    struct gc_ledger ledger; /* file NULL: none */
    struct gc_doorbell *doorbell;
    bool has_group;
    atomic_bool is_serving;
    atomic_bool is_exiting;
    atomic_uint checks; /* counted, for every so many of them look */
    atomic_flag loss_logged;
    atomic_flag removal_logged;
    /* Limits asked for devices that are not added yet; bit i of the mask: row i. */
    _Atomic uint64_t late_mask;
    _Atomic uint64_t late_limits[GC_LEDGER_DEVICES];
    struct gc_request_handler {
        gc_request_function *_Atomic function;
        void *argument;
    } handlers[GC_REQUEST_COUNT];
};

/* As gc_core_join. */
void gc_member_join(struct gc_core *core, const char *program, struct gc_doorbell *doorbell);
/* A device comes: its row, its account in the group, the group's limit. Before anything is reserved
 * on it. */
void gc_group_attach(struct gc_core *core, struct gc_device *device);
/* Serves what was asked, if anything was, and waits for nothing. True: it did. No lock may be held.
 */
bool gc_group_serve(struct gc_core *core);
/* Registers the function that answers the request. Nothing where there is no ledger. */
void gc_core_set_request_function(struct gc_core *core, enum gc_ledger_request_kind kind,
                                  gc_request_function *function, void *argument);
/* Forgets everything, the slot too. */
void gc_group_fini(struct gc_core *core);

/* ---- making room: member_room.c ---- */

/* One request that is short; all zero at first. */
struct gc_borrow {
    uint64_t end_ns; /* until when is waited */
    uint64_t requested_ns;
    unsigned count;
    bool is_short; /* nothing is waited for */
};

/* After all that this process can do itself did not make room for `bytes`: settles what dead
 * members held, asks others for their idle memory and waits for it, GPUCACHE_WAIT at most. True:
 * another attempt is worth while. No lock may be held. */
bool gc_borrow_step(struct gc_device *device, uint64_t bytes, struct gc_borrow *room);

#endif
