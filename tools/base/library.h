/* Finds the library to preload, relative to this program. */
#ifndef GC_TOOL_LIBRARY_H
#define GC_TOOL_LIBRARY_H

#include "tools/base/tool.h"

#include <limits.h>

/* Looks in this program's folder (a build), then in ../lib, ../lib64 and ../lib's multiarch folder.
 * False with `reason` (PATH_MAX + 128 bytes) if the library is in none of these. */
bool library_find(char path[PATH_MAX], char *reason);

#endif
