/* Pause and resume of the process, or of one tenant in it: the gate for work is closed, what
 * is under way is let finish, and the physical memory of its pools goes out of the device (swap.h)
 * until the resume. All or nothing: where one pool may not go, all stay.
 *
 * The process's gate stays closed until it is resumed. Where a tenant is paused it opens
 * again, guarded: threads of other tenants go on, those of the tenant wait.
 *
 * Nothing waits without an end: work that does not finish in time, because it waits for something
 * that the program would do next, means that the process goes on as if nothing had been asked.
 *
 * One thread at a time pauses or resumes: another one is refused, as busy. Both block meanwhile,
 * and hold no lock when they call the driver. */
#ifndef GC_PAUSE_H
#define GC_PAUSE_H

#include "core/core.h"

struct gc_tenant;

struct gc_pause_request {
    struct gc_tenant *tenant; /* NULL: the process */
    bool keeps_content;       /* else what was in the memory is lost */
    bool is_vouched; /* the caller knows that nothing is submitted which the library does not see */
    uint32_t timeout_ms; /* for work under way */
};

/* False: it goes on; the result says why. */
bool gc_core_pause(struct gc_core *core, const struct gc_pause_request *request,
                   struct gc_swap_result *result) GC_CHECKED;
/* Tenant NULL: the process; its paused tenants stay so. False: it is still paused, as a whole or in
 * part; try again when there is room. */
bool gc_core_resume(struct gc_core *core, struct gc_tenant *tenant,
                    struct gc_swap_result *result) GC_CHECKED;
bool gc_core_is_paused(const struct gc_core *core);
/* Answers requests to pause and resume that come through the ledger (pause_ask.c). */
void gc_pause_join(struct gc_core *core);

/* The paused tenant whose live block contains the address; NULL: none. */
struct gc_tenant *gc_core_find_paused(struct gc_core *core, uint64_t address);

#endif
