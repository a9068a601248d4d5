/* The specification. Its version is the first whose names of devices may begin with a digit. */
#include "tools/cdi/cdi.h"

#include "core/config/size.h"
#include "core/io/json.h"
#include "core/io/text.h"
#include "tools/base/library.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CDI_VERSION "0.5.0"
#define NAME_BYTES 32
#define HOOK_SECONDS 10

/* Copies the first of the names and moves behind it; false at the end. A name that is too long is
 * cut and then is no size. */
static bool take_name(const char **names, char name[NAME_BYTES])
{
    if (*names == NULL)
        return false;
    const size_t length = strcspn(*names, ",");
    snprintf(name, NAME_BYTES, "%.*s", (int)length, *names);
    *names = (*names)[length] == ',' ? *names + length + 1 : NULL;
    return true;
}

static bool is_device_name(const char *name)
{
    static const char accepted[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                   "0123456789.";
    uint64_t bytes;
    return strspn(name, accepted) == strlen(name) && strlen(name) < NAME_BYTES - 1 &&
           gc_size_parse(name, &bytes) == GC_OK;
}

static bool is_repeated(const char *names, size_t index, const char *name)
{
    char other[NAME_BYTES];
    for (size_t i = 0; i < index && take_name(&names, other); i++) {
        if (strcmp(other, name) == 0)
            return true;
    }
    return false;
}

int cdi_spec_check(const struct cdi_settings *settings)
{
    char name[NAME_BYTES];
    const char *rest = settings->sizes;
    for (size_t i = 0; take_name(&rest, name); i++) {
        if (!is_device_name(name))
            return tool_refuse(&cdi_command, "--sizes", name,
                               "sizes without blanks, separated by commas (512MiB,2GiB,1.5GiB)");
        if (is_repeated(settings->sizes, i, name))
            return tool_usage(&cdi_command, "--sizes: %s stands twice", name);
    }
    return TOOL_DONE;
}

static void write_mount(struct gc_json *json, const char *from, const char *to)
{
    static const char *const options[] = {"ro", "nosuid", "nodev", "bind"};
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_write_string(json, "hostPath", from);
    gc_json_write_string(json, "containerPath", to);
    gc_json_open_array(json, "options", GC_JSON_LINE);
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        gc_json_string(json, options[i]);
    gc_json_end_array(json);
    gc_json_end_object(json);
}

/* An empty place, which the runtime makes safely in the image; the hook mounts the scope on it.
 * Writable: runc makes read-only, after the hooks, the topmost mount there. */
static void write_place(struct gc_json *json)
{
    static const char *const options[] = {"nosuid", "nodev", "noexec", "mode=0755", "size=4k"};
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_write_string(json, "hostPath", "tmpfs");
    gc_json_write_string(json, "containerPath", CDI_PLACE);
    gc_json_write_string(json, "type", "tmpfs");
    gc_json_open_array(json, "options", GC_JSON_LINE);
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        gc_json_string(json, options[i]);
    gc_json_end_array(json);
    gc_json_end_object(json);
}

/* The environment is set, though the hook needs none: runc lets a hook without one inherit the
 * container's, and an image's LD_PRELOAD would be loaded on the host (CVE-2025-23266). */
static void write_hook(struct gc_json *json, const struct cdi_settings *settings, const char *tool,
                       const char *stage, const char *action)
{
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_write_string(json, "hookName", stage);
    gc_json_write_string(json, "path", tool);
    gc_json_open_array(json, "args", GC_JSON_LINE);
    gc_json_string(json, "gpucache");
    gc_json_string(json, "cdi");
    gc_json_string(json, action);
    gc_json_string(json, "--node");
    gc_json_string(json, settings->node);
    if (strcmp(action, "create") == 0) {
        gc_json_string(json, "--library");
        gc_json_string(json, settings->library);
    }
    gc_json_end_array(json);
    gc_json_open_array(json, "env", GC_JSON_LINE);
    gc_json_string(json, "PATH=/usr/sbin:/usr/bin:/sbin:/bin");
    gc_json_end_array(json);
    gc_json_write_uint(json, "timeout", HOOK_SECONDS);
    gc_json_end_object(json);
}

static void write_devices(struct gc_json *json, const char *names)
{
    char name[NAME_BYTES];
    char variable[NAME_BYTES + 32];
    gc_json_open_array(json, "devices", GC_JSON_LINES);
    while (take_name(&names, name)) {
        snprintf(variable, sizeof(variable), "GPUCACHE_GROUP_LIMIT=%s", name);
        gc_json_begin_object(json, GC_JSON_LINE);
        gc_json_write_string(json, "name", name);
        gc_json_open_object(json, "containerEdits", GC_JSON_LINE);
        gc_json_open_array(json, "env", GC_JSON_LINE);
        gc_json_string(json, variable);
        gc_json_end_array(json);
        gc_json_end_object(json);
        gc_json_end_object(json);
    }
    gc_json_end_array(json);
}

static void write_edits(struct gc_json *json, const struct cdi_settings *settings,
                        const char *module, const char *tool)
{
    gc_json_open_object(json, "containerEdits", GC_JSON_LINES);
    gc_json_open_array(json, "env", GC_JSON_LINES);
    gc_json_string(json, "LD_PRELOAD=" CDI_LIBRARY);
    gc_json_string(json, "GPUCACHE_GROUP=" CDI_GROUP);
    gc_json_string(json, "GPUCACHE_MODE=" CDI_MODE);
    gc_json_string(json, "GPUCACHE_LEDGER_REQUIRED=1");
    gc_json_end_array(json);
    gc_json_open_array(json, "mounts", GC_JSON_LINES);
    write_mount(json, settings->library, CDI_LIBRARY);
    if (module[0] != '\0')
        write_mount(json, module, CDI_MODULE);
    if (settings->with_tool)
        write_mount(json, tool, CDI_TOOL);
    write_place(json);
    gc_json_end_array(json);
    gc_json_open_array(json, "hooks", GC_JSON_LINES);
    write_hook(json, settings, tool, "createContainer", "create");
    write_hook(json, settings, tool, "poststop", "remove");
    gc_json_end_array(json);
    gc_json_end_object(json);
}

/* The module lies beside the library's file or in gpucache/ there; "" if it is in neither. */
static void find_module(const char *library, char module[PATH_MAX])
{
    static const char *const places[] = {"", "gpucache/"};
    const char *slash = strrchr(library, '/');
    const int folder_bytes = (int)(slash - library);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const int length = snprintf(module, PATH_MAX, "%.*s/%slibgpucache-model.so", folder_bytes,
                                    library, places[i]);
        if (length < PATH_MAX && access(module, R_OK) == 0)
            return;
    }
    module[0] = '\0';
}

int cdi_spec_write(const struct cdi_settings *settings, struct gc_writer *out)
{
    char module[PATH_MAX];
    char tool[PATH_MAX];
    struct gc_json json;
    const ssize_t length = readlink("/proc/self/exe", tool, sizeof(tool) - 1);
    if (length <= 0)
        return tool_fail(&cdi_command, "/proc/self/exe: %s", strerror(errno));
    tool[length] = '\0';
    find_module(settings->library, module);
    gc_json_init(&json, out);
    gc_json_begin_object(&json, GC_JSON_LINES);
    gc_json_write_string(&json, "cdiVersion", CDI_VERSION);
    gc_json_write_string(&json, "kind", CDI_KIND);
    write_devices(&json, settings->sizes);
    write_edits(&json, settings, module, tool);
    gc_json_end_object(&json);
    gc_writer_char(out, '\n');
    return TOOL_DONE;
}
