/* Finds the library to preload, relative to this program. */
#ifndef GC_TOOL_LIBRARY_H
#define GC_TOOL_LIBRARY_H

#include "tools/base/tool.h"

#include <limits.h>

/* Looks beside this program (a build), then in a folder for libraries beside its own. False with
 * `reason` (PATH_MAX + 128 bytes) if the library is in neither. */
bool library_find(char path[PATH_MAX], char *reason);

#endif
