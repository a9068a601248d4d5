/* A regular file, read through a window that moves over it.
 *
 * Files are never mapped: a mapping of a file that another process cuts short kills the reader by
 * SIGBUS. With pread a shrunk file is an error instead. Skipping is free; every byte read counts
 * against the limit header_bytes. */
#ifndef GC_READER_SOURCE_H
#define GC_READER_SOURCE_H

#include "core/reader/reader.h"

#define GC_SOURCE_WINDOW_BYTES (256 << 10)

struct gc_source {
    struct gc_reader *reader;
    const char *path; /* for messages, in the reader's region */
    int fd;
    uint32_t file;  /* index in the reader's files, or GC_MODEL_NONE */
    uint64_t bytes; /* when it was opened */
    uint64_t ahead; /* reading ahead ends here */
    unsigned char *window;
    uint64_t window_start;
    uint32_t window_bytes;
    uint32_t step; /* size of the next read; grows while reading is sequential */
};

/* Mode and size of `name` in the folder `at`; "" is the descriptor itself. `flags` are statx's. -1
 * with errno on failure. Uses statx: the symbol stat needs a newer libc. */
int gc_source_stat(int at, const char *name, int flags, uint32_t *mode, uint64_t *bytes);

/* The folder a model's files must lie in. `shared` is the blobs folder if the folder is a snapshot
 * of a Hugging Face cache, whose files are links to blobs; else -1. */
struct gc_folder {
    const char *path;
    int fd;
    int shared;
};

/* Opens the user's own path, following links. GC_IO if it is not a folder. */
enum gc_status gc_source_open_folder(struct gc_reader *reader, const char *path,
                                     struct gc_folder *folder) GC_CHECKED;
void gc_source_close_folder(struct gc_folder *folder);

/* Opens a file given by the user, following links, and its folder; *name is the file's name in the
 * folder. After a failure both are closed. */
enum gc_status gc_source_open_with_folder(struct gc_reader *reader, const char *path,
                                          struct gc_source *source, struct gc_folder *folder,
                                          const char **name) GC_CHECKED;
/* Takes ownership of an open descriptor; closes it on failure. */
enum gc_status gc_source_open_fd(struct gc_reader *reader, const char *path, int fd,
                                 struct gc_source *source) GC_CHECKED;
/* Opens a file that a model names: `name`, relative to the model's folder, must stay in it. ".."
 * and absolute names fail. Links fail, except to a file of the same folder or, in a Hugging Face
 * cache, to a blob. `named_by` and `place` are for messages: the file and its part that name it. */
enum gc_status gc_source_open_in(struct gc_reader *reader, const struct gc_folder *folder,
                                 const char *name, const char *named_by, const char *place,
                                 struct gc_source *source) GC_CHECKED;
/* Only the file's size, by the rules of gc_source_open_in; opens and closes it. */
enum gc_status gc_source_size_in(struct gc_reader *reader, const struct gc_folder *folder,
                                 const char *name, const char *named_by, const char *place,
                                 const char **path, uint64_t *bytes) GC_CHECKED;
/* Does the folder have an entry of that name? */
bool gc_source_folder_has(const struct gc_folder *folder, const char *name);
/* Writes "PATH: byte OFFSET: text" as gc_reader_fail does; returns GC_FORMAT. */
enum gc_status gc_source_fail(const struct gc_source *source, uint64_t offset, const char *format,
                              ...) __attribute__((format(printf, 3, 4)));
void gc_source_close(struct gc_source *source);

/* `bytes`, at most a window, at `offset`; *view is valid until the next call. GC_FORMAT if the file
 * ends before; `what` names the item for the message. */
enum gc_status gc_source_view(struct gc_source *source, uint64_t offset, size_t bytes,
                              const char *what, const unsigned char **view) GC_CHECKED;
/* The window's bytes from `offset` on, at least one; *count is 0 at the end of the file. */
enum gc_status gc_source_more(struct gc_source *source, uint64_t offset, const unsigned char **view,
                              size_t *count) GC_CHECKED;

#endif
