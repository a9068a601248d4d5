/* Where the library to preload lies, seen from this program. */
#ifndef GC_TOOL_LIBRARY_H
#define GC_TOOL_LIBRARY_H

#include "tools/base/tool.h"

#include <limits.h>

/* Beside this program, as built, or in a folder for libraries beside its own. False, with `reason`
 * of PATH_MAX + 128 bytes, if it is nowhere. */
bool library_find(char path[PATH_MAX], char *reason);

#endif
