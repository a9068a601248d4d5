/* The hooks, as the runtime specification of the Open Container Initiative defines them: the state
 * is JSON on standard input, the bundle's config.json describes the container. `create` runs at
 * the stage createContainer: in the container's mount namespace, all mounts done, before
 * pivot_root, so that both the host's tree and the container's are there. */
#define _GNU_SOURCE
#include "tools/cdi/cdi.h"

#include "core/config/size.h"
#include "core/io/text.h"
#include "tools/cdi/cdi_scope.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of Linux 5.6; a C library may be older. */
#define OPENAT2 437
#define IN_ROOT 0x10
#define NO_MAGICLINKS 0x02

struct container {
    json_t *state;
    json_t *config;
    const char *id;
    char root[PATH_MAX];
};

#define fail(...) tool_fail(&cdi_command, __VA_ARGS__)

static const char *get_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

static int read_state(struct container *container)
{
    json_error_t error;
    container->state = json_loadf(stdin, JSON_REJECT_DUPLICATES, &error);
    if (container->state == NULL)
        return fail("standard input: %s; the state of a container is accepted, as a runtime gives "
                    "it to a hook",
                    error.text);
    container->id = get_text(container->state, "id");
    if (!scope_is_name(container->id))
        return fail("the state's id is not valid; accepted: letters, digits, '_', '-', '.', '+'");
    return TOOL_DONE;
}

static int read_config(struct container *container)
{
    char path[PATH_MAX];
    json_error_t error;
    const char *bundle = get_text(container->state, "bundle");
    if (bundle[0] != '/' || snprintf(path, sizeof(path), "%s/config.json", bundle) >= PATH_MAX)
        return fail("the state's bundle is not valid; accepted: the path of a folder");
    container->config = json_load_file(path, 0, &error);
    if (container->config == NULL)
        return fail("%s: %s", path, error.text);
    const char *root = get_text(json_object_get(container->config, "root"), "path");
    const int length = root[0] == '/' ? snprintf(container->root, PATH_MAX, "%s", root)
                                      : snprintf(container->root, PATH_MAX, "%s/%s", bundle, root);
    if (root[0] == '\0' || length >= PATH_MAX)
        return fail("%s: root.path is not valid; accepted: the path of a folder", path);
    return TOOL_DONE;
}

static void release(struct container *container)
{
    json_decref(container->state);
    json_decref(container->config);
}

/* The value of a variable of the container's program; as in libc, the first one counts. */
static const char *get_variable(const struct container *container, const char *name)
{
    const json_t *variables = json_object_get(json_object_get(container->config, "process"), "env");
    const size_t length = strlen(name);
    for (size_t i = 0; i < json_array_size(variables); i++) {
        const char *text = json_string_value(json_array_get(variables, i));
        if (text != NULL && strncmp(text, name, length) == 0 && text[length] == '=')
            return text + length + 1;
    }
    return "";
}

static bool is_preloaded(const char *list)
{
    for (const char *word = list; *word != '\0';) {
        const size_t length = strcspn(word, " :");
        if (length == strlen(CDI_LIBRARY) && strncmp(word, CDI_LIBRARY, length) == 0)
            return true;
        word += length + strspn(word + length, " :");
    }
    return false;
}

/* Whether a variable has one of the values, which "|" separates, in any case of letters. */
static bool has_value(const struct container *container, const char *name, const char *values)
{
    const char *text = get_variable(container, name);
    const size_t length = strlen(text);
    for (const char *word = values; *word != '\0';) {
        const size_t word_length = strcspn(word, "|");
        if (length == word_length && gc_text_equal_nocase(text, word, length))
            return true;
        word += word_length + (word[word_length] == '|');
    }
    return false;
}

/* Variables that lead the container's programs away from its limit or from its scope. */
static int check_escapes(const struct container *container)
{
    static const struct {
        const char *name;
        const char *accepted;
        bool may_be_empty;
    } rows[] = {
        {"GPUCACHE_MODE", "cache|track", false},     {"GPUCACHE_LEDGER", "", true},
        {"GPUCACHE_NODE", "/run/gpucache", true},    {"GPUCACHE_CONFIG", "", true},
        {"CUDA_DISABLE_CONTROL", "false|f|0", true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *text = get_variable(container, rows[i].name);
        if (!has_value(container, rows[i].name, rows[i].accepted) &&
            !(rows[i].may_be_empty && text[0] == '\0'))
            return fail("the container has no limit: %s=%s is not valid there; accepted: %s%s",
                        rows[i].name, text, rows[i].may_be_empty ? "nothing" : rows[i].accepted,
                        rows[i].may_be_empty && rows[i].accepted[0] != '\0' ? ", or its default"
                                                                            : "");
    }
    return TOOL_DONE;
}

/* Another option of the container may have replaced a variable. */
static int check_variables(const struct container *container)
{
    struct gc_size_spec limit;
    const char *text = get_variable(container, "GPUCACHE_GROUP_LIMIT");
    if (!is_preloaded(get_variable(container, "LD_PRELOAD")))
        return fail("the container has no limit: LD_PRELOAD=%s does not name %s",
                    get_variable(container, "LD_PRELOAD"), CDI_LIBRARY);
    if (text[0] == '\0' || gc_size_spec_parse(text, true, &limit) != GC_OK)
        return fail("the container has no limit: GPUCACHE_GROUP_LIMIT=%s is not valid; accepted: "
                    "a size, or a size for each device",
                    text);
    if (get_variable(container, "GPUCACHE_GROUP")[0] == '\0')
        return fail("the container has no limit: GPUCACHE_GROUP is not set");
    return check_escapes(container);
}

/* Opens a path of the container as its own programs would; -1 with errno. */
static int open_inside(int root, const char *path, int flags)
{
    const struct {
        uint64_t flags;
        uint64_t mode;
        uint64_t resolve;
    } how = {
        .flags = (uint64_t)(unsigned)(flags | O_PATH | O_CLOEXEC),
        .resolve = IN_ROOT | NO_MAGICLINKS,
    };
    return (int)syscall(OPENAT2, root, path, &how, sizeof(how));
}

/* The file that the container's loader will open is the host's library. */
static int check_library(int root, const char *library)
{
    struct stat inside;
    struct stat outside;
    const int fd = open_inside(root, CDI_LIBRARY, 0);
    if (fd < 0)
        return fail("the container has no limit: %s in it: %s", CDI_LIBRARY, strerror(errno));
    const bool is_known = fstat(fd, &inside) == 0;
    close(fd);
    if (stat(library, &outside) != 0)
        return fail("%s: %s", library, strerror(errno));
    if (!is_known || inside.st_dev != outside.st_dev || inside.st_ino != outside.st_ino)
        return fail("the container has no limit: %s in it is another file than %s", CDI_LIBRARY,
                    library);
    return TOOL_DONE;
}

/* Mounts the scope on the place. The place is opened again for the flags: a descriptor from before
 * the mount is below it. */
static int mount_scope(int root, const char *scope)
{
    char target[64];
    int status = TOOL_DONE;
    for (int step = 0; step < 2 && status == TOOL_DONE; step++) {
        const int place = open_inside(root, CDI_PLACE, O_DIRECTORY);
        if (place < 0)
            return fail("%s in the container: %s", CDI_PLACE, strerror(errno));
        snprintf(target, sizeof(target), "/proc/self/fd/%d", place);
        const int failed =
            step == 0 ? mount(scope, target, NULL, MS_BIND, NULL)
                      : mount(NULL, target, NULL,
                              MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
        if (failed != 0)
            status = fail("%s cannot be mounted in the container: %s", scope, strerror(errno));
        close(place);
    }
    return status;
}

/* What the engine says about the container: the annotations of containerd and CRI-O name the pod.
 */
static size_t find_labels(const struct container *container,
                          struct scope_label labels[SCOPE_LABEL_MAX])
{
    static const struct {
        const char *key;
        const char *annotations[2];
    } known[SCOPE_LABEL_MAX] = {
        {"pod", {"io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"}},
        {"namespace", {"io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"}},
        {"container", {"io.kubernetes.cri.container-name", "io.kubernetes.container.name"}},
    };
    const json_t *annotations = json_object_get(container->config, "annotations");
    size_t count = 0;
    for (size_t i = 0; i < SCOPE_LABEL_MAX; i++) {
        const char *value = "";
        for (size_t j = 0; j < 2 && value[0] == '\0'; j++)
            value = get_text(annotations, known[i].annotations[j]);
        if (value[0] == '\0' && i == SCOPE_LABEL_MAX - 1)
            value = container->id;
        if (value[0] != '\0')
            labels[count++] = (struct scope_label){known[i].key, value};
    }
    return count;
}

static int create(const struct cdi_settings *settings, const struct container *container)
{
    char scope[PATH_MAX];
    struct scope_label labels[SCOPE_LABEL_MAX];
    const int root = open(container->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return fail("%s: %s", container->root, strerror(errno));
    int status = check_library(root, settings->library);
    if (status == TOOL_DONE)
        status = scope_make(settings->node, container->id, labels, find_labels(container, labels),
                            scope);
    if (status == TOOL_DONE) {
        status = mount_scope(root, scope);
        if (status != TOOL_DONE)
            (void)!scope_remove(settings->node, container->id);
    }
    close(root);
    return status;
}

int cdi_hook_create(const struct cdi_settings *settings)
{
    struct container container = {.state = NULL};
    int status = read_state(&container);
    if (status == TOOL_DONE)
        status = read_config(&container);
    if (status == TOOL_DONE)
        status = check_variables(&container);
    if (status == TOOL_DONE)
        status = create(settings, &container);
    release(&container);
    return status;
}

int cdi_hook_remove(const struct cdi_settings *settings)
{
    struct container container = {.state = NULL};
    int status = read_state(&container);
    if (status == TOOL_DONE)
        status = scope_remove(settings->node, container.id);
    release(&container);
    return status;
}
