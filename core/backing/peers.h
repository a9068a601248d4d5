/* Access of other devices to mapped memory: see peers.c. */
#ifndef GC_PEERS_H
#define GC_PEERS_H

#include "core/backing/change.h"

/* What an access that the driver refused left unshared; the change is the caller's, no lock. */
void gc_peers_grant_rest(struct gc_change *change);
/* Makes a new record know the peers of its head. */
void gc_peers_copy(struct gc_context *record);

#endif
