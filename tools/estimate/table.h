/* gpucache estimate --table: the weights by type, and the cache by context and type. */
#ifndef GC_ESTIMATE_TABLE_H
#define GC_ESTIMATE_TABLE_H

#include "tools/estimate/estimate_setup.h"

/* Prints the table for the one model of the setup. TOOL_FAILED, with a line. */
int estimate_table_run(const struct tool_command *command,
                       const struct estimate_setup *setup) GC_CHECKED;

#endif
