/* What `gpucache doctor` finds: a list of findings, each with what to do about it.
 *
 * Examinations write findings; those that run foreign code (the driver) do so in a process of their
 * own, which may crash or hang. Nothing is changed on the system. */
#ifndef GC_DOCTOR_H
#define GC_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

enum doctor_level {
    DOCTOR_OK,
    DOCTOR_INFO,    /* worth knowing */
    DOCTOR_WARNING, /* something will not be as wished */
    DOCTOR_FAILURE, /* the library cannot do its work */
};

struct doctor_finding {
    enum doctor_level level;
    char topic[24]; /* "library", "device 0" */
    char *text;
    char *advice; /* NULL: nothing is to be done */
};

struct doctor {
    struct doctor_finding *findings;
    size_t count;
    bool no_memory; /* findings were lost */
};

void doctor_fini(struct doctor *doctor);

/* A finding. Foreign text in it is shown, not interpreted: what is not printable becomes '?'. */
void doctor_report(struct doctor *doctor, enum doctor_level level, const char *topic,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));
/* What to do about the last one. */
void doctor_advise(struct doctor *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
size_t doctor_count(const struct doctor *doctor, enum doctor_level level);

/* Examines in a child, whose findings are taken over. If it does not end well within `seconds`,
 * that is a failure of `topic`. What it prints is dropped. */
void doctor_apart(struct doctor *doctor, const char *topic, unsigned seconds,
                  void (*examine)(struct doctor *doctor));

/* ---- the examinations ---- */

void doctor_library(struct doctor *doctor); /* is it there, does it load, are settings valid */
void doctor_system(struct doctor *doctor);  /* the loader, the container, limits, the ledger */
void doctor_driver(struct doctor *doctor);  /* driver, toolkit, devices */
/* How `program` gets to CUDA; a name is looked for as a shell would. */
void doctor_program(struct doctor *doctor, const char *program);

/* Runs a program without LD_PRELOAD and with `name` = `value` in its environment. `output` is what
 * it prints on both streams, cut to `size`, closed by NUL. Its status; -1 if it could not be
 * started, was killed or took longer than 10 s. */
int doctor_run(const char *const *arguments, const char *name, const char *value, char *output,
               size_t size);

#endif
