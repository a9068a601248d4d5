/* Processes by number and start time, so that a number that was reused does not mislead. Reads
 * /proc; allocates nothing; keeps errno.
 *
 * Memory of a dead process: the kernel drops its lock and closes its device in no fixed order, and
 * the device may take a while to free the memory. A slot without a lock is therefore charged while
 * the kernel still shows its process, 10 s at most. Where /proc cannot show it (another PID
 * namespace) it is charged 0.1 s longer. */
#ifndef GC_LEDGER_PROCESS_H
#define GC_LEDGER_PROCESS_H

#include "core/ledger/file.h"

#include <stdbool.h>
#include <stdint.h>

/* Of the calling process; 0: not known. */
uint64_t gc_ledger_pid_namespace(void);
/* When it started, in ticks since the boot; 0: not known. */
uint64_t gc_ledger_start_ticks(uint32_t pid);
/* Whether the process of that number that started then has not ended with all its threads. */
bool gc_ledger_process_exists(uint32_t pid, uint64_t start_ticks);
/* Whether it is stopped, by a signal or a debugger. */
bool gc_ledger_process_is_stopped(uint32_t pid, uint64_t start_ticks);
/* Whether the slot's owner, which is dead, may still have device memory. */
bool gc_ledger_process_is_dying(struct gc_ledger_slot *slot);

#endif
