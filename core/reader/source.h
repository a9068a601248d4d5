/* A regular file, read through a window that moves over it.
 *
 * Files are never mapped: a mapping of a file that another process cuts short kills the reader by
 * SIGBUS. What pread cannot give any more is an error instead. Only headers are looked at: skipping
 * is free, and every byte read counts against what a reading may cost. */
#ifndef GC_READER_SOURCE_H
#define GC_READER_SOURCE_H

#include "core/reader/reader.h"

#define GC_SOURCE_WINDOW_BYTES (256 << 10)

struct gc_source {
    struct gc_reader *reader;
    const char *path; /* for messages, in the reader's region */
    int fd;
    uint32_t file;  /* index among the reader's files, or GC_MODEL_NONE */
    uint64_t bytes; /* when it was opened */
    uint64_t ahead; /* nothing from here on is read before it is asked for */
    unsigned char *window;
    uint64_t window_start;
    uint32_t window_bytes;
    uint32_t step; /* how much is read next: more while reading goes on in sequence */
};

/* What stands at `name`, from the folder `at`; "" is the descriptor itself. `flags` as statx has
 * them. -1 with errno if it cannot be said. statx is of libc since long, where stat is a newer
 * symbol. */
int gc_source_look(int at, const char *name, int flags, uint32_t *mode, uint64_t *bytes);

/* The folder a model's files must lie in. `shared` is the blobs folder beside it where the folder
 * is a snapshot of a Hugging Face cache, whose files are links into it; else -1. */
struct gc_folder {
    const char *path;
    int fd;
    int shared;
};

/* Opens the user's own path: links are followed. GC_IO if it is there but no folder. */
enum gc_status gc_folder_open(struct gc_reader *reader, const char *path,
                              struct gc_folder *folder) GC_CHECKED;
void gc_folder_close(struct gc_folder *folder);

/* The same with the folder it lies in, and its name there: both are open, or neither. */
enum gc_status gc_source_open_with_folder(struct gc_reader *reader, const char *path,
                                          struct gc_source *source, struct gc_folder *folder,
                                          const char **name) GC_CHECKED;
/* Takes an open descriptor, which is closed if it fails. */
enum gc_status gc_source_take(struct gc_reader *reader, const char *path, int fd,
                              struct gc_source *source) GC_CHECKED;
/* The same for a file that a model names: `name`, relative to its folder, must stay in it. ".." and
 * absolute names are refused, links are too, save those to a file of the same folder or, in a
 * Hugging Face cache, of its blobs. `named_by` and `place` say in messages who wants it. */
enum gc_status gc_source_open_in(struct gc_reader *reader, const struct gc_folder *folder,
                                 const char *name, const char *named_by, const char *place,
                                 struct gc_source *source) GC_CHECKED;
/* The file's size alone, under the same rules; it is opened and closed. */
enum gc_status gc_source_size_in(struct gc_reader *reader, const struct gc_folder *folder,
                                 const char *name, const char *named_by, const char *place,
                                 const char **path, uint64_t *bytes) GC_CHECKED;
/* Is there anything of that name in the folder? */
bool gc_folder_has(const struct gc_folder *folder, const char *name);
/* Writes "PATH: byte OFFSET: text" as gc_reader_fail does; returns GC_FORMAT. */
enum gc_status gc_source_fail(const struct gc_source *source, uint64_t offset, const char *format,
                              ...) __attribute__((format(printf, 3, 4)));
void gc_source_close(struct gc_source *source);

/* `bytes`, at most a window, at `offset`; *view is valid until the next call. GC_FORMAT if the file
 * ends before; `what` names the thing that was to be read. */
enum gc_status gc_source_view(struct gc_source *source, uint64_t offset, size_t bytes,
                              const char *what, const unsigned char **view) GC_CHECKED;
/* What is at `offset` of as much as is at hand, at least one byte; *count is 0 at the end. */
enum gc_status gc_source_more(struct gc_source *source, uint64_t offset, const unsigned char **view,
                              size_t *count) GC_CHECKED;

#endif
