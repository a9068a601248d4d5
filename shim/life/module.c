/* The module is opened by its path, which follows from the library's own path when it was loaded:
 * LD_LIBRARY_PATH and the working folder have no influence on the code that is loaded. */
#define _GNU_SOURCE
#include "shim/life/module.h"
#include "shim/real/open.h"

#include "core/io/elf.h"
#include "core/io/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES 640

static const char *make_printable(const char *text, char shown[SHOWN_BYTES])
{
    return gc_text_printable(text, strlen(text), shown, SHOWN_BYTES);
}

/* ---- where it is ---- */

static void copy_path(void *argument, const char *path)
{
    if (path == NULL || !gc_text_copy(argument, PATH_MAX, path, strlen(path)))
        *(char *)argument = '\0';
}

/* Whether a line of /proc/self/maps, "low-high access offset device inode path", contains the
 * address. */
static bool contains(const char *line, uintptr_t address)
{
    uint64_t low, high;
    const char *rest = gc_text_read_hex(line, &low);

    if (*rest != '-')
        return false;
    (void)gc_text_read_hex(rest + 1, &high);
    return address >= low && address < high;
}

/* The absolute path of the file that is mapped at the address; of a deleted file the path that it
 * had. False: not known. */
static bool find_mapped(uintptr_t address, char path[PATH_MAX])
{
    static const char deleted[] = " (deleted)";
    const size_t suffix = sizeof(deleted) - 1;
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[PATH_MAX + 128] = "";
    bool is_found = false;

    while (maps != NULL && !is_found && fgets(line, sizeof(line), maps) != NULL)
        is_found = contains(line, address);
    if (maps != NULL)
        fclose(maps);
    const char *start = is_found ? strchr(line, '/') : NULL;
    if (start == NULL)
        return false;
    size_t length = strcspn(start, "\n");
    if (length > suffix && memcmp(start + length - suffix, deleted, suffix) == 0)
        length -= suffix;
    return gc_text_copy(path, PATH_MAX, start, length);
}

/* The library may have been preloaded by a symbolic link: then the module is beside the file. If
 * the file is gone, the folder may still have the module. */
static bool find_library(char path[PATH_MAX])
{
    const void *self = (const void *)&gc_module_open;
    char loaded[PATH_MAX];

    gc_elf_visit_path(self, copy_path, loaded);
    /* A relative path starts at the working folder of that time; the program may have left it. */
    if (loaded[0] != '/' && !find_mapped((uintptr_t)self, loaded))
        return false;
    if (realpath(loaded, path) == NULL)
        memcpy(path, loaded, sizeof(loaded));
    return true;
}

static bool find(char path[PATH_MAX], struct gc_module *module)
{
    char library[PATH_MAX];
    char shown[SHOWN_BYTES];

    if (!find_library(library)) {
        snprintf(module->reason, sizeof(module->reason),
                 GC_MODEL_MODULE_FILE ", which reads models, is not found: the path by which the "
                                      "library was preloaded is not known; preload it by its "
                                      "absolute path");
        return false;
    }
    if (gc_model_module_find(library, path))
        return true;
    const bool is_missing = errno == ENOENT;
    const char *error = strerror(errno);
    strrchr(library, '/')[strrchr(library, '/') == library] = '\0';
    make_printable(library, shown);
    snprintf(module->reason, sizeof(module->reason),
             GC_MODEL_MODULE_FILE
             ", which reads models, is neither in %s nor in %s/gpucache%s%s: install it beside the "
             "library",
             shown, shown,
             is_missing ? "" : ", as far as this process sees: ", is_missing ? "" : error);
    return false;
}

/* ---- whether it may be used ---- */

static void refuse_build(struct gc_module *module, const char *path)
{
    char shown[SHOWN_BYTES];
    char version[sizeof(module->calls->key.version) + 1];

    gc_text_printable(module->calls->key.version,
                      strnlen(module->calls->key.version, sizeof(module->calls->key.version)),
                      version, sizeof(version));
    snprintf(module->reason, sizeof(module->reason),
             "%s is of another build (version %s) than this library (version " GC_VERSION
             "): install both from one build",
             make_printable(path, shown), version);
    module->calls = NULL;
}

static void load(const char *path, struct gc_module *module)
{
    static struct gc_open_task opening = {.symbol = GC_MODEL_MODULE_SYMBOL};
    const char *why;
    char shown[SHOWN_BYTES];

    if (!gc_model_module_is_whole(path, &why)) {
        snprintf(module->reason, sizeof(module->reason),
                 "the module that reads models cannot be loaded: %s: %s",
                 make_printable(path, shown), why);
        return;
    }
    if (!gc_open_object(&opening, path)) {
        snprintf(module->reason, sizeof(module->reason),
                 "the module that reads models cannot be loaded: another thread is loading a "
                 "library, and waits for this one; call cuInit before that");
        return;
    }
    module->calls = opening.found;
    if (module->calls == NULL)
        snprintf(module->reason, sizeof(module->reason),
                 "the module that reads models cannot be loaded: %s",
                 make_printable(opening.error, shown));
    else if (!gc_model_module_matches(module->calls))
        refuse_build(module, path);
}

void gc_module_open(struct gc_module *module)
{
    char path[PATH_MAX];

    *module = (struct gc_module){0};
    if (find(path, module))
        load(path, module);
}
