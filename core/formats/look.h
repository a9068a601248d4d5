/* What kind of file there is, and how large. Not by the stat functions: their names in libc are
 * newer than the libraries that this one must load beside. */
#ifndef GC_FORMATS_LOOK_H
#define GC_FORMATS_LOOK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct gc_look {
    mode_t mode; /* for S_ISREG and its like */
    uint64_t bytes;
};

/* As fstatat: `name` in `folder` (AT_FDCWD too); AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH. False with
 * errno. */
bool gc_look_at(int folder, const char *name, int flags, struct gc_look *look);
/* As fstat. */
bool gc_look_open(int fd, struct gc_look *look);

#endif
