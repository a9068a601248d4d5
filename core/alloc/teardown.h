/* Records of contexts, and streams, that go. */
#ifndef GC_TEARDOWN_H
#define GC_TEARDOWN_H

#include "core/device/context.h"

/* The stream is gone: what was freed in its order waits for all work, also where the pool is
 * hidden.
 */
void gc_context_close_stream(struct gc_context *context, uint64_t stream);
/* The record goes, its handle stays: drops its pool, what is mapped is unmapped. False: it went
 * with its handle already. */
bool gc_context_drop_record(struct gc_context *record);

#endif
