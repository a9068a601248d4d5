/* Processes by PID and start time, which tells a reused PID apart. Reads /proc; allocates nothing;
 * keeps errno.
 *
 * The kernel drops a dead process's lock and closes its device in no fixed order, and the device
 * may take a while to free the memory. So a slot without a lock stays charged while the kernel
 * still lists the process, up to DYING_NS_MAX; up to GRACE_NS if /proc cannot show the process
 * (another PID namespace). */
#ifndef GC_LEDGER_PROCESS_H
#define GC_LEDGER_PROCESS_H

#include "core/ledger/file.h"

#include <stdbool.h>
#include <stdint.h>

/* The PID namespace of the calling process; 0: not known. */
uint64_t gc_ledger_pid_namespace(void);
/* The start time of a process, in ticks since boot; 0: not known. */
uint64_t gc_ledger_start_ticks(uint32_t pid);
/* The address of the process's first stack, which changes with each exec where addresses are
 * random; 0: not known, as during an exec. A new one is there once the exec has closed its
 * descriptors. */
uint64_t gc_ledger_stack_address(uint32_t pid);
/* Whether the process with that PID and start time is stopped, by a signal or a debugger. */
bool gc_ledger_process_is_stopped(uint32_t pid, uint64_t start_ticks);
/* Whether the process with that PID and start time still has a running thread. */
bool gc_ledger_process_exists(uint32_t pid, uint64_t start_ticks);
/* Whether the slot's dead owner may still have device memory. */
bool gc_ledger_process_is_dying(struct gc_ledger_slot *slot);

#endif
