/* The specification of the Container Device Interface, and the hooks that it names. Inside a
 * container the library has one path, whatever its path on the host is. */
#ifndef GC_CDI_H
#define GC_CDI_H

#include "tools/base/tool.h"

#define CDI_KIND "gpucache.dev/memory"
#define CDI_FOLDER "/usr/lib/gpucache"
#define CDI_LIBRARY CDI_FOLDER "/libgpucache.so"
#define CDI_MODULE CDI_FOLDER "/libgpucache-model.so"
#define CDI_TOOL "/usr/bin/gpucache"
#define CDI_PLACE "/run/gpucache/users" /* where the library of a container puts its ledgers */
#define CDI_GROUP "container"
#define CDI_MODE "cache" /* prevails over a configuration file of the image */

/* Names the command in messages. */
static const struct tool_command cdi_command = {.name = "cdi"};

struct cdi_settings {
    const char *node;    /* the node's folder on the host */
    const char *library; /* on the host; the module lies beside it or in gpucache/ there */
    const char *sizes;   /* names of devices, separated by commas */
    bool with_tool;
};

/* Writes the specification. TOOL_USAGE, with a line, if a size is none or is no name of a device.
 */
int cdi_spec_check(const struct cdi_settings *settings) GC_CHECKED;
int cdi_spec_write(const struct cdi_settings *settings, struct gc_writer *out) GC_CHECKED;

/* The hooks, with the runtime's state on standard input. Any failure is TOOL_FAILED with a line. */
int cdi_hook_create(const struct cdi_settings *settings) GC_CHECKED;
int cdi_hook_remove(const struct cdi_settings *settings) GC_CHECKED;

#endif
