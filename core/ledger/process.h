/* Who a process is, so that its number being reused does not mislead. Linux's /proc, no libc
 * allocation, errno kept. */
#ifndef GC_LEDGER_PROCESS_H
#define GC_LEDGER_PROCESS_H

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

#endif
