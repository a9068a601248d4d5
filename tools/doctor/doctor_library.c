/* The library itself: its file, whether it can be preloaded here, the module that reads models,
 * and its settings. */
#include "core/config/options.h"
#include "core/report/model_module.h"
#include "tools/base/library.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/doctor_backend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define TOPIC "library"

extern char **environ;

/* Runs this tool under the library to learn the version that is preloaded. */
static void examine_preload(struct doctor *doctor, const char *library)
{
    const char *const arguments[] = {"/proc/self/exe", "doctor", "--answer", NULL};
    char output[2048];
    char version[64];
    const int status = doctor_run(arguments, "LD_PRELOAD", library, output, sizeof(output));
    const char *answer = strstr(output, "answer ");
    if (status == 0 && answer != NULL && sscanf(answer, "answer %63s", version) == 1) {
        doctor_report(doctor, DOCTOR_OK, TOPIC, "%s, version %s, can be preloaded", library,
                      version);
        if (strcmp(version, GC_VERSION) != 0) {
            doctor_report(doctor, DOCTOR_WARNING, TOPIC, "the library is %s, this tool " GC_VERSION,
                          version);
            doctor_advise(doctor, "install both from one build: reports and the ledger may differ");
        }
        return;
    }
    output[strcspn(output, "\n")] = '\0';
    doctor_report(doctor, DOCTOR_FAILURE, TOPIC, "%s cannot be preloaded: %s", library,
                  output[0] != '\0' ? output : "a program under it ended without output");
    doctor_advise(
        doctor,
        "check that it is built for this machine's architecture, that its folder is readable and "
        "not mounted noexec, and that glibc is 2.31 or newer");
}

/* NULL with *why. The module stays loaded. */
static const struct gc_model_module *load_module(const char *path, const char **why)
{
    const struct gc_model_module *module = NULL;
    if (!gc_model_module_is_whole(path, why))
        return NULL;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle != NULL)
        module = dlsym(handle, GC_MODEL_MODULE_SYMBOL);
    if (module == NULL && (*why = dlerror()) == NULL)
        *why = "it has no " GC_MODEL_MODULE_SYMBOL;
    return module;
}

/* Examines the module that the library opens if GPUCACHE_MODEL is set. `level`: of the finding if
 * the library would refuse the module. */
static void examine_module(struct doctor *doctor, const char *library, enum doctor_level level)
{
    char path[PATH_MAX];
    const char *why;
    if (!gc_model_module_find(library, path)) {
        doctor_report(doctor, level, TOPIC,
                      GC_MODEL_MODULE_FILE " is neither beside %s nor in the folder gpucache there",
                      library);
        doctor_advise(doctor, "install it there: with GPUCACHE_MODEL no model can be read without "
                              "it, and GPUCACHE_GATE=deny and exit refuse CUDA");
        return;
    }
    const struct gc_model_module *module = load_module(path, &why);
    if (module == NULL) {
        doctor_report(doctor, DOCTOR_FAILURE, TOPIC, "%s cannot be loaded: %s", path, why);
        doctor_advise(doctor, "install it again, from the library's build");
    } else if (!gc_model_module_matches(module)) {
        doctor_report(doctor, level, TOPIC,
                      "%s is of another build (version %.31s) than this tool (version " GC_VERSION
                      ")",
                      path, module->key.version);
        doctor_advise(doctor, "install library, module and tool from one build: the library "
                              "refuses a module of another");
    } else {
        doctor_report(doctor, DOCTOR_OK, TOPIC, "%s, version %.31s, reads models", path,
                      module->key.version);
    }
}

/* Adds every line that the library would log about its settings. */
static void examine_settings(struct doctor *doctor, const struct gc_options *options)
{
    for (uint32_t i = 0; i < options->warning_count; i++) {
        doctor_report(doctor, options->refused ? DOCTOR_FAILURE : DOCTOR_WARNING, "settings", "%s",
                      options->warnings[i]);
        doctor_advise(doctor, "gpucache help options lists names and values");
    }
    if (options->warning_count == 0 && options->set_mask == 0)
        doctor_report(doctor, DOCTOR_OK, "settings", "none set: the defaults apply");
    for (int i = 0; i < GC_OPTION_COUNT; i++) {
        const char *text = gc_options_is_set(options, (enum gc_option)i)
                               ? getenv(gc_options_get_row((enum gc_option)i)->name)
                               : NULL;
        if (text != NULL)
            doctor_report(doctor, DOCTOR_OK, "settings", "%s=%s",
                          gc_options_get_row((enum gc_option)i)->name, text);
    }
}

/* The one answer of a program's CUDA calls that changes by default. */
static void examine_reuse(struct doctor *doctor, const struct gc_options *options)
{
    if (options->mode != GC_MODE_CACHE || options->reuse != GC_REUSE_FENCE ||
        doctor_backend_is_tracked(options))
        return;
    doctor_report(doctor, DOCTOR_INFO, "settings",
                  "cudaFree and cuMemFree return at once: they do not wait for the device, and "
                  "report no error of earlier work");
    doctor_advise(doctor, "a program that reads results after a free alone, without a call that "
                          "waits, needs GPUCACHE_REUSE=sync");
}

void doctor_library(struct doctor *doctor)
{
    struct gc_log log = {.level = GC_LOG_ERROR, .fd = -1};
    struct gc_options *options;
    if (gc_options_load(environ, &log, &options) != GC_OK) {
        doctor_report(doctor, DOCTOR_FAILURE, "settings", "could not be read: out of memory");
        return;
    }
    /* Whether these settings let CUDA start only with a model that was read. */
    const bool needs_module = options->model[0] != '\0' && gc_admission_is_closed(options->gate);
    char library[PATH_MAX];
    char reason[PATH_MAX + 128];
    if (library_find(library, reason)) {
        examine_preload(doctor, library);
        examine_module(doctor, library, needs_module ? DOCTOR_FAILURE : DOCTOR_WARNING);
    } else {
        doctor_report(doctor, DOCTOR_FAILURE, TOPIC, "%s", reason);
        doctor_advise(doctor, "build it (make) or install it (make install) beside this tool");
    }
    examine_settings(doctor, options);
    examine_reuse(doctor, options);
    gc_options_free(options);
}
