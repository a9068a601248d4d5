/* Teardown of contexts, of single records, of streams: see teardown.c. */
#ifndef GC_TEARDOWN_H
#define GC_TEARDOWN_H

#include "core/device/context.h"

/* The stream is destroyed: blocks freed in its order wait for all work from now on, also those of a
 * detached pool. */
void gc_teardown_close_stream(struct gc_context *context, uint64_t stream);
/* Drops the pool of one record, mapped memory included; the handle stays. False: a teardown of the
 * handle has dropped it already. */
bool gc_teardown_drop_record(struct gc_context *record);

#endif
