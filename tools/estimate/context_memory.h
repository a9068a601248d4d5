/* What a CUDA context takes of a device, found by making two. */
#ifndef CONTEXT_MEMORY_H
#define CONTEXT_MEMORY_H

#include "tools/base/tool.h"

#include <stdint.h>

/* A context each in two processes of its own: the second one's is what the device has less once it
 * is there. Others that allocate meanwhile are counted too. TOOL_FAILED, with a line, where there
 * is no device or it has no room. Takes as long as CUDA's start, twice. */
int context_memory_measure(const struct tool_command *command, uint64_t *bytes);

#endif
