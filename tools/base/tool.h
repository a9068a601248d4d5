/* Shared by the commands of the tool: exit statuses, messages, options, files. */
#ifndef GC_TOOL_H
#define GC_TOOL_H

#include "core/io/writer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tool_status {
    TOOL_DONE = 0,
    TOOL_FAILED = 1,
    TOOL_USAGE = 2,
    TOOL_DOES_NOT_FIT = 3,
};

struct tool_command {
    const char *name;
    const char *synopsis;              /* printed after the name */
    const char *summary;               /* one line */
    const char *help;                  /* lines about options; NULL if there are none */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
};

extern const struct tool_command tool_command_estimate;
extern const struct tool_command tool_command_doctor;
extern const struct tool_command tool_command_run;
extern const struct tool_command tool_command_cdi;
extern const struct tool_command tool_command_exporter;
extern const struct tool_command tool_command_plan;
extern const struct tool_command tool_command_report;
extern const struct tool_command tool_command_trace;
extern const struct tool_command tool_command_replay;
extern const struct tool_command tool_command_top;
extern const struct tool_command tool_command_limit;
extern const struct tool_command tool_command_trim;
extern const struct tool_command tool_command_pause;
extern const struct tool_command tool_command_pin;
extern const struct tool_command tool_command_resume;
extern const struct tool_command tool_command_evict;

/* Prints "gpucache COMMAND: text" on stderr; returns TOOL_FAILED. */
int tool_fail(const struct tool_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* As tool_fail, followed by a pointer to the help; returns TOOL_USAGE. */
int tool_usage(const struct tool_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* As tool_usage, for the value of an option; `accepted` lists the valid values. */
int tool_refuse(const struct tool_command *command, const char *option, const char *value,
                const char *accepted);
/* The candidate nearest to a misspelt word; NULL while none is near. Add candidates one by one. */
struct tool_nearest {
    const char *word;
    const char *name;
    unsigned distance;
};
void tool_nearest_add(struct tool_nearest *nearest, const char *name);

/* Flushes stdout; TOOL_FAILED, with a line, if that failed. A write to a closed pipe ends the
 * tool by SIGPIPE, as in other programs. */
int tool_finish(const struct tool_command *command, struct gc_writer *out);
void tool_print_help(struct gc_writer *out, const struct tool_command *command);
/* Prints the words of `text` with lines broken before column 80 and indented to `column`, then
 * ends the line. A first line that is already past `column` goes on where it is. */
void tool_print_wrapped(struct gc_writer *out, size_t column, const char *text);

/* One option: --name VALUE or --name=VALUE, or a flag. A value that begins with "--" needs the
 * second form. */
struct tool_option {
    const char *name;       /* with its dashes */
    const char **value;     /* set for an option with a value */
    bool *flag;             /* set for a flag */
    const char *bare;       /* value if none follows; NULL: a value is required */
    struct tool_list *list; /* set for an option that may be repeated */
    const char *accepted;   /* the words that are its values; NULL: others */
};

#define TOOL_LIST_MAX 16
struct tool_list {
    size_t count;
    const char *values[TOOL_LIST_MAX];
};

/* The values of options that are integers. */
struct tool_count {
    const char *option;
    const char *text; /* NULL: absent; *value stays */
    uint64_t *value;
    uint64_t minimum;
    uint64_t maximum;
    const char *accepted; /* for the message */
};
int tool_parse_counts(const struct tool_command *command, const struct tool_count *counts,
                      size_t count) GC_CHECKED;

/* Joins the values of --dim, each "name=N" or several separated by commas, in `dims`, "" for
 * none. Returns the first value that is malformed or does not fit; NULL if all are joined. */
const char *tool_join_dims(const struct tool_list *list, char *dims, size_t size);

/* Reads options until the first argument that is none, or "--", which is skipped. *next is the
 * index of the argument after them. TOOL_USAGE, with a line, for an unknown, repeated or
 * incomplete option; TOOL_DONE with *next == 0 after --help, whose text was printed. */
int tool_parse(const struct tool_command *command, const struct tool_option *options, size_t count,
               int argc, char **argv, int *next) GC_CHECKED;

/* As tool_parse, with options before, between and after the arguments. `most` arguments are
 * required, or one to `most` with one_is_enough. TOOL_DONE with `helped` after --help. */
#define TOOL_WORDS_MAX 32
struct tool_words {
    size_t most;
    bool one_is_enough;
    const char *names[TOOL_WORDS_MAX]; /* "a file" */
    size_t count;
    bool helped;
    const char *words[TOOL_WORDS_MAX];
};
int tool_parse_words(const struct tool_command *command, const struct tool_option *options,
                     size_t count, int argc, char **argv, struct tool_words *words) GC_CHECKED;

/* As tool_parse_words, for one argument, the file; NULL after --help. */
int tool_parse_file(const struct tool_command *command, const struct tool_option *options,
                    size_t count, int argc, char **argv, const char **file) GC_CHECKED;

/* A regular file mapped read-only, until tool_unmap. */
struct tool_file {
    const char *path;
    void *data; /* NULL if the file is empty; after a byte order mark of UTF-8 */
    size_t bytes;
    size_t mark_bytes;         /* of that mark */
    unsigned long long device; /* identity of the file: no output may be the same */
    unsigned long long inode;
};
/* TOOL_FAILED with a line if the path is not a readable regular file. */
int tool_map(const struct tool_command *command, const char *path,
             struct tool_file *file) GC_CHECKED;
void tool_unmap(struct tool_file *file);
/* A hint to append to the message about a file of another kind than `wanted`: "; it is a report,
 * for gpucache report". "" for a file of the wanted kind or of an unknown one. */
enum tool_kind { TOOL_REPORT, TOOL_TRACE };
const char *tool_file_hint(const struct tool_file *file, enum tool_kind wanted);

/* Opens a file for writing and truncates it; "-" is standard output. The file must not be
 * `input`, which may be NULL, nor one that this process already opened for writing. On TOOL_DONE
 * the caller closes `out`; else a line was printed. */
int tool_output_open(const struct tool_command *command, const char *path,
                     const struct tool_file *input, struct gc_writer *out) GC_CHECKED;
/* TOOL_FAILED with a line if the path is the input file, which may be empty (not mapped). */
int tool_output_check(const struct tool_command *command, const char *path,
                      const struct tool_file *input) GC_CHECKED;
/* TOOL_FAILED with a line if a write since the opening failed. */
int tool_output_close(const struct tool_command *command, const char *path,
                      struct gc_writer *out) GC_CHECKED;

#endif
