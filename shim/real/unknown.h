/* Entry points of the driver that neither table knows: they may submit work that nothing counts. */
#ifndef GC_UNKNOWN_H
#define GC_UNKNOWN_H

#include "shim/shim.h"

/* The program was handed the driver's own function for (name, version). If no table knows the name,
 * every free needs a fence from now on. Any thread, before the start too. */
void gc_unknown_log(const char *name, int version);
/* As gc_unknown_log for a known name of an unknown ABI; version 0: looked up as a symbol. */
void gc_unknown_check(const char *name, int version);
/* For a `name` without a row that dlsym returns: as gc_unknown_log, if it is the driver's. */
void gc_unknown_log_symbol(const char *name);
/* The code at `caller` fetched one of the driver's own tables. */
void gc_unknown_log_export_table(const void *caller);
/* Core exists: applies a name that was recorded before. */
void gc_unknown_apply(void);
/* For the report: why every free needs a fence; NULL: none does for this reason. */
const char *gc_unknown_text(void);

#endif
