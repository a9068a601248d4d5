/* Calls that pass no wrapper: entry points of the driver that neither table knows, and libraries
 * whose calls are not seen. They may submit work that nothing counts. */
#ifndef GC_UNKNOWN_H
#define GC_UNKNOWN_H

#include "shim/shim.h"

enum gc_unseen {
#define REASON(name, level, format) GC_UNSEEN_##name,
#include "shim/real/unseen.def"
};

#define GC_UNSEEN_MAX 16 /* reasons that are named; the last stands for all others */

/* From now on every free needs a fence, and the log and the report say why, once for each reason,
 * name and version (0: none). Any thread, before the start too. */
void gc_unseen_add(enum gc_unseen reason, const char *name, int version);
/* Core exists: applies the reasons that were recorded before. */
void gc_unseen_apply(void);
/* For the report, below GC_UNSEEN_MAX; NULL: no such reason. */
const char *gc_unseen_text(uint32_t index);

/* The program was handed the driver's own function for (name, version): a reason if no table knows
 * the name. */
void gc_unknown_log(const char *name, int version);
/* As gc_unknown_log for a known name of an unknown ABI; version 0: looked up as a symbol. */
void gc_unknown_check(const char *name, int version);
/* For a `name` without a row that dlsym returns: as gc_unknown_log, if it is the driver's. */
void gc_unknown_log_symbol(const char *name);
/* The code at `caller` fetched one of the driver's own tables. */
void gc_unknown_log_export_table(const void *caller);

#endif
