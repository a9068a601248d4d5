/* In what state the program's thread and context are: see call_state.c. */
#ifndef GC_CALL_STATE_H
#define GC_CALL_STATE_H

#include "shim/shim.h"

/* Before the program's call is served by core, inside its wrapper: CUDA_SUCCESS, or what the plain
 * driver answers in the thread's state whatever is asked for: no context, a context that is gone or
 * has failed, a host function, the end of the driver. With `is_unsafe` (the call is one that
 * captures forbid) also that a capture forbids it, which ends that capture as the plain call
 * does. *current: as gc_shim_current_context. */
CUresult gc_shim_check_state(bool is_unsafe, struct gc_context **current);

#endif
