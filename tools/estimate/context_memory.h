/* The memory of a CUDA context, measured with two. */
#ifndef CONTEXT_MEMORY_H
#define CONTEXT_MEMORY_H

#include "tools/base/tool.h"

#include <stdint.h>

/* Creates a context in each of two child processes; the result is the decrease of free memory by
 * the second. Allocations of other programs meanwhile are counted too. TOOL_FAILED, with a line, if
 * there is no device or it is full. Takes twice as long as CUDA's start. */
int context_memory_measure(const struct tool_command *command, uint64_t *bytes);

#endif
