/* What a pause, and a turn that ends, have in common: the contexts that they concern, whether their
 * memory can go, and the wait for the work of the program. No lock may be held. */
#ifndef GC_SCOPE_H
#define GC_SCOPE_H

#include "core/device/context.h"
#include "core/pause/swap.h"

struct gc_tenant;

/* One thread at a time pauses, resumes, or moves memory of a turn. False: another one does,
 * GC_SWAP_BUSY; else the result is empty. End returns `is_done`. */
bool gc_scope_begin_moving(struct gc_core *core, struct gc_swap_result *result) GC_CHECKED;
bool gc_scope_end_moving(struct gc_core *core, bool is_done);

/* False ends the walk. */
typedef bool gc_scope_visit_function(struct gc_context *context, void *argument);

/* Visits the contexts of one tenant, or, with NULL, all but those of paused tenants, whose memory
 * is out already and stays so. False if a visit returned false. A context that is torn down
 * meanwhile may or may not be visited. */
bool gc_scope_visit(struct gc_core *core, const struct gc_tenant *tenant,
                    gc_scope_visit_function *visit, void *argument);

/* As that, of the contexts whose memory a turn of the process has, or a resume brings back: not
 * those of tenants that are away, which come back when they are demanded. */
bool gc_scope_visit_in(struct gc_core *core, const struct gc_tenant *tenant,
                       gc_scope_visit_function *visit, void *argument);

/* Whether the scope's memory can be swapped out and all work can be waited for. No driver call. */
enum gc_swap_refusal gc_scope_check(struct gc_core *core, const struct gc_tenant *tenant);

bool gc_scope_is_capturing(struct gc_core *core);

struct gc_scope_deadline {
    const struct gc_driver *driver;
    uint64_t end_ns;
    /* Called now and then; may be NULL. */
    void (*waiting)(void *argument);
    void *argument;
};

struct gc_scope_deadline gc_scope_deadline_in(const struct gc_core *core, uint64_t timeout_ms);
/* With the gate closed: waits until no thread is inside, checks again, and waits for the work of
 * all contexts: work of any tenant may use the memory. */
bool gc_scope_drain(struct gc_core *core, const struct gc_tenant *tenant,
                    const struct gc_scope_deadline *deadline, struct gc_swap_result *result);

/* As that, of a caller that moves nothing that others reach: only captures forbid the wait. */
bool gc_scope_quiesce(struct gc_core *core, const struct gc_scope_deadline *deadline,
                      struct gc_swap_result *result);

/* Whether the turn of the process, or of the tenant in it, has ended and some of its memory is out:
 * see away.h. */
bool gc_scope_is_away(const struct gc_core *core, const struct gc_tenant *tenant);
/* Sets the gate's mode by what is paused and away now. Waiting threads check the mode again. */
void gc_scope_set_gate(struct gc_core *core);

/* Memory of a context that was destroyed meanwhile need not be moved. */
bool gc_scope_is_moved(const struct gc_context *context, bool is_done,
                       struct gc_swap_result *result);

#endif
