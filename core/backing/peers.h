/* Grants peers access to mapped memory: see peers.c. */
#ifndef GC_PEERS_H
#define GC_PEERS_H

#include "core/backing/change.h"

/* Grants again the access that the driver refused earlier. The caller has the change and holds no
 * lock. */
void gc_peers_grant_rest(struct gc_change *change);
/* Copies the head's peers to a new record. */
void gc_peers_copy(struct gc_context *record);

#endif
