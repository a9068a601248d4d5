/* Pause and resume of the whole process: the turnstile for work is closed, what is under way is let
 * finish, and the physical memory of all its pools goes out of the device (swap.h) until the
 * resume. All or nothing: where one pool may not go, all stay.
 *
 * Nothing waits without an end: work that does not finish in time, because it waits for something
 * that the program would do next, means that the process goes on as if nothing had been asked.
 *
 * One thread at a time pauses or resumes: another one is refused, as busy. Both block meanwhile,
 * and hold no lock when they call the driver. */
#ifndef GC_PAUSE_H
#define GC_PAUSE_H

#include "core/core.h"

/* False: the process goes on; the result says why. `keeps_content`: else what was in the memory is
 * lost. */
bool gc_core_pause(struct gc_core *core, bool keeps_content, uint32_t timeout_ms,
                   struct gc_swap_result *result) GC_CHECKED;
/* False: it is still paused, as a whole or in part; try again when there is room. */
bool gc_core_resume(struct gc_core *core, struct gc_swap_result *result) GC_CHECKED;
bool gc_core_is_paused(struct gc_core *core);
/* Answers requests to pause and resume that come through the ledger. */
void gc_pause_join(struct gc_core *core);
/* Where the process is paused, waits until it is not. Where no helper hears the requests of others
 * the thread answers them meanwhile, so that the process can be resumed at all. No lock may be
 * held, and nobody who is inside the turnstile may wait here. */
void gc_core_await_resume(struct gc_core *core);

#endif
