/* What the commands of the tool share: exit statuses, messages, options, files. */
#ifndef GC_TOOL_H
#define GC_TOOL_H

#include "core/io/writer.h"

#include <stdbool.h>
#include <stddef.h>

enum tool_status {
    TOOL_DONE = 0,
    TOOL_FAILED = 1,
    TOOL_USAGE = 2,
    TOOL_DOES_NOT_FIT = 3,
};

struct tool_command {
    const char *name;
    const char *synopsis;              /* behind the name */
    const char *summary;               /* one line */
    const char *help;                  /* lines about options; NULL if there are none */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
};

extern const struct tool_command tool_command_estimate;
extern const struct tool_command tool_command_doctor;
extern const struct tool_command tool_command_run;
extern const struct tool_command tool_command_plan;
extern const struct tool_command tool_command_report;
extern const struct tool_command tool_command_trace;
extern const struct tool_command tool_command_replay;
extern const struct tool_command tool_command_top;
extern const struct tool_command tool_command_limit;
extern const struct tool_command tool_command_trim;
extern const struct tool_command tool_command_pause;
extern const struct tool_command tool_command_resume;

/* A line on stderr, "gpucache COMMAND: text"; returns TOOL_FAILED. */
int tool_fail(const struct tool_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same with a pointer to the help behind it; returns TOOL_USAGE. */
int tool_usage(const struct tool_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same for the value of an option; `accepted` names those that are. */
int tool_refuse(const struct tool_command *command, const char *option, const char *value,
                const char *accepted);
/* The name that a misspelt word may have meant: offered one after the other, the nearest stays;
 * NULL while none is near. */
struct tool_nearest {
    const char *word;
    const char *name;
    unsigned distance;
};
void tool_nearest_offer(struct tool_nearest *nearest, const char *name);

/* Flushes what was written on stdout; TOOL_FAILED, with a line, if that failed. Who writes into a
 * pipe that nobody reads any more ends by SIGPIPE, as other programs do. */
int tool_finish(const struct tool_command *command, struct gc_writer *out);
void tool_print_help(struct gc_writer *out, const struct tool_command *command);
/* Words of `text`, broken before column 80, each line begun at `column`, the first where it stands
 * if that is behind; ends the line. */
void tool_print_wrapped(struct gc_writer *out, size_t column, const char *text);

/* One option: --name VALUE or --name=VALUE, or a flag. A value that begins with "--" wants the
 * second form. */
struct tool_option {
    const char *name;       /* with its dashes */
    const char **value;     /* set for an option with a value */
    bool *flag;             /* set for a flag */
    const char *bare;       /* what the value is where none follows; NULL: one must */
    struct tool_list *list; /* set for an option that may be given again and again */
};

#define TOOL_LIST_MAX 16
struct tool_list {
    size_t count;
    const char *values[TOOL_LIST_MAX];
};

/* The values of --dim, "name=N" each or several with commas between them, as one list in `dims`, ""
 * for none. Returns the value that is not of that form, or has no room; NULL if all are. */
const char *tool_join_dims(const struct tool_list *list, char *dims, size_t size);

/* Reads options until the first argument that is none, or "--", which is skipped. *next is the
 * index of the argument after them. TOOL_USAGE, with a line, for an unknown, repeated or incomplete
 * option; TOOL_DONE with *next == 0 after --help, which it printed. */
int tool_parse(const struct tool_command *command, const struct tool_option *options, size_t count,
               int argc, char **argv, int *next) GC_CHECKED;

/* The same where options may stand before, between and behind the arguments, `most` of which are
 * wanted, or from one to `most`. TOOL_DONE with `helped` after --help. */
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

/* The same for one argument, the file; NULL after --help. */
int tool_parse_file(const struct tool_command *command, const struct tool_option *options,
                    size_t count, int argc, char **argv, const char **file) GC_CHECKED;

/* A regular file's content, read-only. Unmapped with tool_unmap. */
struct tool_file {
    const char *path;
    void *data; /* NULL if the file is empty */
    size_t bytes;
    unsigned long long device; /* identity, so that an output can be kept from being the input */
    unsigned long long inode;
};
/* TOOL_FAILED with a line if it is no readable regular file. */
int tool_map(const struct tool_command *command, const char *path,
             struct tool_file *file) GC_CHECKED;
void tool_unmap(struct tool_file *file);
/* What a file is where another kind was wanted, to be set behind the message: "; it is a report,
 * for gpucache report". "" for what is of the wanted kind, or none of ours. */
enum tool_kind { TOOL_REPORT, TOOL_TRACE };
const char *tool_file_hint(const struct tool_file *file, enum tool_kind wanted);

/* A file to write, emptied if it is there; "-" is standard output. It must not be `input`, which
 * may be NULL, nor what this process opened for writing before. TOOL_FAILED with a line; else `out`
 * is to be closed. */
int tool_output_open(const struct tool_command *command, const char *path,
                     const struct tool_file *input, struct gc_writer *out) GC_CHECKED;
/* TOOL_FAILED with a line if the path is that input, which may be empty (not mapped). */
int tool_output_check(const struct tool_command *command, const char *path,
                      const struct tool_file *input) GC_CHECKED;
/* TOOL_FAILED with a line if anything since could not be written. */
int tool_output_close(const struct tool_command *command, const char *path,
                      struct gc_writer *out) GC_CHECKED;

#endif
