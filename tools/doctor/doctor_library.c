/* The library itself: where it is, whether it can be preloaded here, and what it is told. */
#include "core/config/options.h"
#include "tools/base/library.h"
#include "tools/doctor/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define TOPIC "library"

extern char **environ;

/* A program under the library that says which version it finds: this one. */
static void examine_preload(struct doctor *doctor, const char *library)
{
    const char *const arguments[] = {"/proc/self/exe", "doctor", "--answer", NULL};
    char output[2048];
    char version[64];
    const int status = doctor_run(arguments, "LD_PRELOAD", library, output, sizeof(output));
    const char *answer = strstr(output, "answer ");
    if (status == 0 && answer != NULL && sscanf(answer, "answer %63s", version) == 1) {
        doctor_say(doctor, DOCTOR_OK, TOPIC, "%s, version %s, can be preloaded", library, version);
        if (strcmp(version, GC_VERSION) != 0) {
            doctor_say(doctor, DOCTOR_WARNING, TOPIC, "the library is %s, this tool " GC_VERSION,
                       version);
            doctor_advise(doctor, "install both from one build: reports and the ledger may differ");
        }
        return;
    }
    output[strcspn(output, "\n")] = '\0';
    doctor_say(doctor, DOCTOR_FAILURE, TOPIC, "%s cannot be preloaded: %s", library,
               output[0] != '\0' ? output : "a program under it ended without a word");
    doctor_advise(doctor, "check that it is of this machine's architecture, that its folder can be "
                          "read and is not mounted noexec, and that glibc is 2.31 or newer");
}

/* Every line the library would write about its settings. */
static void examine_settings(struct doctor *doctor)
{
    struct gc_log log = {.level = GC_LOG_ERROR, .fd = -1};
    struct gc_options *options;
    if (gc_options_load(environ, &log, &options) != GC_OK) {
        doctor_say(doctor, DOCTOR_FAILURE, "settings", "could not be read: no memory");
        return;
    }
    for (uint32_t i = 0; i < options->warning_count; i++) {
        doctor_say(doctor, options->refused ? DOCTOR_FAILURE : DOCTOR_WARNING, "settings", "%s",
                   options->warnings[i]);
        doctor_advise(doctor, "gpucache help options lists names and values");
    }
    if (options->warning_count == 0 && options->set_mask == 0)
        doctor_say(doctor, DOCTOR_OK, "settings", "none are set: the defaults");
    for (int i = 0; i < GC_OPTION_COUNT; i++) {
        const char *text = gc_options_is_set(options, (enum gc_option)i)
                               ? getenv(gc_option_row((enum gc_option)i)->name)
                               : NULL;
        if (text != NULL)
            doctor_say(doctor, DOCTOR_OK, "settings", "%s=%s",
                       gc_option_row((enum gc_option)i)->name, text);
    }
    gc_options_free(options);
}

void doctor_library(struct doctor *doctor)
{
    char library[PATH_MAX];
    char reason[PATH_MAX + 128];
    if (library_find(library, reason)) {
        examine_preload(doctor, library);
    } else {
        doctor_say(doctor, DOCTOR_FAILURE, TOPIC, "%s", reason);
        doctor_advise(doctor, "build it (make) or install it (make install) beside this tool");
    }
    examine_settings(doctor);
}
