/* The module is opened by its path, which follows from the library's own path: LD_LIBRARY_PATH and
 * the working folder have no influence on the code that is loaded. */
#define _GNU_SOURCE
#include "shim/life/module.h"

#include "core/io/elf.h"
#include "core/io/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES 256

static const char *make_printable(const char *text, char shown[SHOWN_BYTES])
{
    return gc_text_printable(text, strlen(text), shown, SHOWN_BYTES);
}

/* ---- where it lies ---- */

static void copy_path(void *argument, const char *path)
{
    if (path == NULL || !gc_text_copy(argument, PATH_MAX, path, strlen(path)))
        *(char *)argument = '\0';
}

/* The library may have been preloaded by a symbolic link or a relative path. */
static bool find_library(char path[PATH_MAX])
{
    char loaded[PATH_MAX];

    gc_elf_visit_path((const void *)&gc_module_open, copy_path, loaded);
    return loaded[0] != '\0' && realpath(loaded, path) != NULL;
}

static bool find(char path[PATH_MAX], struct gc_module *module)
{
    char library[PATH_MAX];
    char shown[SHOWN_BYTES];

    if (!find_library(library)) {
        snprintf(
            module->reason, sizeof(module->reason),
            "the path by which the library was preloaded does not exist now, so " GC_MODEL_MODULE_FILE
            " is not found: preload it by its absolute path");
        return false;
    }
    if (gc_model_module_find(library, path))
        return true;
    *strrchr(library, '/') = '\0';
    make_printable(library, shown);
    snprintf(module->reason, sizeof(module->reason),
             GC_MODEL_MODULE_FILE ", which reads models, is neither in %s nor in %s/gpucache: "
                                  "install it beside the library",
             shown, shown);
    return false;
}

/* ---- whether it may be used ---- */

static gc_model_module_entry *load(const struct gc_libc *libc, const char *path)
{
    gc_model_module_entry *entry = NULL;
    void *handle = libc->dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (handle != NULL)
        *(void **)&entry = libc->dlsym(handle, GC_MODEL_MODULE_ENTRY);
    return entry;
}

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

void gc_module_open(struct gc_module *module)
{
    const struct gc_libc *libc = gc_elf_libc();
    gc_model_module_entry *entry;
    char path[PATH_MAX];
    char shown[SHOWN_BYTES];

    *module = (struct gc_module){0};
    if (!find(path, module))
        return;
    entry = libc != NULL ? load(libc, path) : NULL;
    if (entry == NULL) {
        /* Also clears the error: the program shall not read of it. */
        const char *error = libc != NULL ? libc->dlerror() : NULL;

        snprintf(module->reason, sizeof(module->reason),
                 "the module that reads models cannot be loaded: %s",
                 make_printable(error != NULL ? error : path, shown));
        return;
    }
    module->calls = entry();
    if (!gc_model_module_matches(module->calls))
        refuse_build(module, path);
}
