/* The findings of `gpucache doctor`, each with advice.
 *
 * Examinations add findings. Those that run foreign code (the driver) do so in a child process,
 * since it may crash or hang. Nothing on the system is changed. */
#ifndef GC_DOCTOR_H
#define GC_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

enum doctor_level {
    DOCTOR_OK,
    DOCTOR_INFO,    /* worth knowing */
    DOCTOR_WARNING, /* something will not work as intended */
    DOCTOR_FAILURE, /* the library cannot do its work */
};

struct doctor_finding {
    enum doctor_level level;
    char topic[24]; /* "library", "device 0" */
    char *text;
    char *advice; /* NULL: nothing to do */
};

struct doctor {
    struct doctor_finding *findings;
    size_t count;
    bool no_memory; /* memory ran out and findings are missing */
};

void doctor_fini(struct doctor *doctor);

/* Adds a finding. Unprintable characters in its text become '?'. */
void doctor_report(struct doctor *doctor, enum doctor_level level, const char *topic,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Adds advice to the last finding. */
void doctor_advise(struct doctor *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
size_t doctor_count(const struct doctor *doctor, enum doctor_level level);

/* Examines in a child process and adds the child's findings. If the child crashes or does not
 * end within `seconds`, that is a failure of `topic`. Output of the child is dropped. */
void doctor_apart(struct doctor *doctor, const char *topic, unsigned seconds,
                  void (*examine)(struct doctor *doctor));

/* ---- the examinations ---- */

void doctor_library(struct doctor *doctor); /* the library's file, whether it loads, its settings */
void doctor_system(struct doctor *doctor);  /* the loader, the container, limits, the ledger */
void doctor_driver(struct doctor *doctor);  /* driver, toolkit, devices */
/* The path of `program` to CUDA; a name is searched in PATH. */
void doctor_program(struct doctor *doctor, const char *program);

/* Runs a program without LD_PRELOAD and with `name` = `value` in its environment. `output` is
 * its output on both streams, cut to `size`, NUL-terminated. Returns its status; -1 if it could
 * not be started, was killed or took longer than 10 s. */
int doctor_run(const char *const *arguments, const char *name, const char *value, char *output,
               size_t size);

#endif
