/* Turns: the processes of a group whose memory together does not fit use the device one after the
 * other (GPUCACHE_OVERCOMMIT=swap).
 *
 * A process runs only while all its memory is resident. One that needs memory, for a request or to
 * run again, takes a ticket; on each device the earliest ticket asks one process after another to
 * give what is lacking: idle cached memory first, then that of processes without work, of processes
 * that wait, and of busy ones whose quantum is over. See the room's README for the states and why
 * nobody waits in a circle.
 *
 * All of it is done by one thread, the helper; the program's threads only say what they need. No
 * lock is held in any function here. Without a group, a ledger or a helper nothing here acts. */
#ifndef GC_TURNS_H
#define GC_TURNS_H

#include "core/core.h"

/* Takes part, if the options say so. Call once, after the process has joined the ledger. */
void gc_turns_join(struct gc_core *core);
/* Frees the record. */
void gc_turns_fini(struct gc_core *core);

#endif
