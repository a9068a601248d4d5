/* What a thread does that waits for memory while no helper thread runs. */
#ifndef GC_ENDING_H
#define GC_ENDING_H

#include "core/core.h"

/* One step, for core's `serve`: serves requests of other processes, among them that to resume, and
 * makes the helper's step, in which memory comes back in its turn. Late in a process's end, resumes
 * what is paused; once the driver has shut down, opens the gate. May call the driver; no lock may
 * be held. */
void gc_ending_serve(struct gc_core *core);

#endif
