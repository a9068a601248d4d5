#define _GNU_SOURCE
#include "core/formats/look.h"

#include <fcntl.h>

bool gc_look_at(int folder, const char *name, int flags, struct gc_look *look)
{
    struct statx info;
    if (statx(folder, name, flags, STATX_TYPE | STATX_SIZE, &info) != 0)
        return false;
    *look = (struct gc_look){.mode = info.stx_mode, .bytes = info.stx_size};
    return true;
}

bool gc_look_open(int fd, struct gc_look *look)
{
    return gc_look_at(fd, "", AT_EMPTY_PATH, look);
}
