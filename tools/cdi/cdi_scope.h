/* The scope of a container on the host: NODE/pods/NAME, a sticky folder for its ledgers, and
 * NODE/pods/NAME.labels. */
#ifndef GC_CDI_SCOPE_H
#define GC_CDI_SCOPE_H

#include "tools/base/tool.h"

#define SCOPE_LABEL_MAX 3
struct scope_label {
    const char *key; /* "pod", "namespace", "container" */
    const char *value;
};

/* Whether the text can name a scope: letters, digits, '_', '-', '.', '+', not a dot first, not
 * ".labels" at the end. */
bool scope_is_name(const char *name);

/* Makes an empty scope, mode 1777, and its labels; removes an older one of that name. `path`
 * (PATH_MAX) is the folder. Control characters in labels become '?'. TOOL_FAILED, with a line and
 * nothing left, if a part cannot be made. */
int scope_make(const char *node, const char *name, const struct scope_label *labels, size_t count,
               char *path) GC_CHECKED;

/* Removes the scope and its labels, which may be gone already. */
int scope_remove(const char *node, const char *name) GC_CHECKED;

#endif
