/* Pause and resume of the process, or of one tenant. A pause closes the gate for work, waits until
 * submitted work has completed, and swaps the physical memory of the pools out of the device
 * (swap.h) until the resume. All or nothing: if one pool cannot be swapped out, none is.
 *
 * After a pause of the process the gate stays closed. After a pause of a tenant it opens again,
 * guarded: threads of the paused tenant wait, others do not.
 *
 * Every wait has a deadline. Work may wait for something that the program does next; if the work
 * has not completed in time the pause fails and the process goes on.
 *
 * One thread at a time pauses or resumes; another one fails with GC_SWAP_BUSY. Both functions block
 * and hold no lock when they call the driver. */
#ifndef GC_PAUSE_H
#define GC_PAUSE_H

#include "core/core.h"

struct gc_tenant;

struct gc_pause_request {
    struct gc_tenant *tenant; /* NULL: the process */
    bool keeps_content;       /* otherwise the content of the memory is lost */
    bool is_vouched;          /* the caller ensures that the library sees all submitted work */
    uint32_t timeout_ms;      /* for work under way */
};

/* False: nothing is paused; the result has the reason. */
bool gc_pause(struct gc_core *core, const struct gc_pause_request *request,
              struct gc_swap_result *result) GC_CHECKED;
/* Tenant NULL: the process; its paused tenants stay paused. False: all or part of the scope is
 * still paused; try again when memory is free. */
bool gc_pause_resume(struct gc_core *core, struct gc_tenant *tenant,
                     struct gc_swap_result *result) GC_CHECKED;
/* Calls `function` while the gate is closed and no work of the program is under way, as in a pause;
 * the gate opens again after it. False: it was not called (a capture, a pause, work that does not
 * end within the time or that the library does not see), or it returned false. */
bool gc_pause_during(struct gc_core *core, uint32_t timeout_ms, bool (*function)(void *argument),
                     void *argument);
bool gc_pause_is_any(const struct gc_core *core);
/* Registers the handlers of the ledger's requests to pause and resume (requests.c). */
void gc_pause_join(struct gc_core *core);

/* The tenant whose live block contains the address and whose memory is out; NULL: none. */
struct gc_tenant *gc_pause_find(struct gc_core *core, uint64_t address);

#endif
