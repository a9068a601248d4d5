#define _GNU_SOURCE /* statx, AT_EMPTY_PATH */
#include "core/formats/source.h"
#include "core/io/writer.h"

#include "core/base/bits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_BYTES_MIN (4U << 10)

int gc_source_look(int at, const char *name, int flags, uint32_t *mode, uint64_t *bytes)
{
    struct statx info;
    if (statx(at, name, flags, STATX_TYPE | STATX_SIZE, &info) != 0)
        return -1;
    *mode = info.stx_mode;
    *bytes = info.stx_size;
    return 0;
}

void gc_source_end(struct gc_load *load)
{
    if (load->spare_window != NULL)
        gc_host_unmap(&load->region.host, load->spare_window, GC_SOURCE_WINDOW_BYTES);
    load->spare_window = NULL;
}

enum gc_status gc_source_fail(const struct gc_source *source, uint64_t offset, const char *format,
                              ...)
{
    char text[GC_MODEL_ERROR_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    return gc_load_fail(source->load, GC_FORMAT, source->path, "byte %llu: %s",
                        (unsigned long long)offset, text);
}

void gc_source_close(struct gc_source *source)
{
    struct gc_load *load = source->load;
    if (source->window != NULL && load->spare_window == NULL)
        load->spare_window = source->window;
    else if (source->window != NULL)
        gc_host_unmap(&load->region.host, source->window, GC_SOURCE_WINDOW_BYTES);
    if (source->fd >= 0)
        close(source->fd);
    source->window = NULL;
    source->fd = -1;
}

/* The window and the size of a file that is open as source->fd. */
static enum gc_status prepare(struct gc_source *source)
{
    uint32_t mode;
    if (gc_source_look(source->fd, "", AT_EMPTY_PATH, &mode, &source->bytes) != 0)
        return gc_load_fail(source->load, GC_IO, source->path, "cannot be looked at (errno %d)",
                            errno);
    if (!S_ISREG(mode))
        return gc_load_fail(source->load, GC_IO, source->path,
                            "is no regular file; model files are");
    source->ahead = source->bytes;
    source->window = source->load->spare_window;
    source->load->spare_window = NULL;
    if (source->window == NULL)
        source->window = gc_host_map(&source->load->region.host, GC_SOURCE_WINDOW_BYTES);
    if (source->window == NULL)
        return gc_load_no_memory(source->load, source->path);
    source->step = STEP_BYTES_MIN;
    return GC_OK;
}

enum gc_status gc_source_take(struct gc_load *load, const char *path, int fd,
                              struct gc_source *source)
{
    *source = (struct gc_source){.load = load, .path = path, .fd = fd, .file = GC_MODEL_NONE};
    const enum gc_status status = prepare(source);
    if (status != GC_OK)
        gc_source_close(source);
    return status;
}

enum gc_status gc_source_open(struct gc_load *load, const char *path, struct gc_source *source)
{
    uint32_t mode;
    uint64_t bytes;
    *source = (struct gc_source){.load = load, .path = path, .fd = -1, .file = GC_MODEL_NONE};
    /* Looked at first: opening a device can do something. */
    if (gc_source_look(AT_FDCWD, path, 0, &mode, &bytes) != 0)
        return gc_load_fail(load, GC_IO, path, "%s",
                            errno == ENOENT ? "there is no such file or folder"
                                            : "cannot be looked at: permission or path");
    if (!S_ISREG(mode))
        return gc_load_fail(load, GC_IO, path, "is no regular file; model files are");
    const int fd = gc_fd_raise(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd < 0)
        return gc_load_fail(load, GC_IO, path, "cannot be opened for reading (errno %d)", errno);
    return gc_source_take(load, path, fd, source);
}

/* Reads at `offset` into the window's free part, as much as the step says and the file has. */
static enum gc_status fill(struct gc_source *source, uint64_t offset, uint32_t used,
                           uint32_t wanted)
{
    uint32_t got = 0;
    while (got < wanted) {
        const unsigned long long at = offset + got;
        const ssize_t here =
            pread(source->fd, source->window + used + got, wanted - got, (off_t)at);
        if (here < 0 && errno == EINTR)
            continue;
        if (here < 0)
            return gc_load_fail(source->load, GC_IO, source->path,
                                "byte %llu: cannot be read (errno %d)", at, errno);
        if (here == 0)
            return gc_load_fail(source->load, GC_IO, source->path,
                                "byte %llu: the file became shorter while it was read", at);
        got += (uint32_t)here;
    }
    source->window_bytes = used + got;
    source->load->header_bytes += got;
    if (source->load->header_bytes > source->load->limits.header_bytes)
        return gc_load_fail(source->load, GC_OUT_OF_RANGE, source->path,
                            "byte %llu: more than %llu bytes of headers; no model has so many",
                            (unsigned long long)offset,
                            (unsigned long long)source->load->limits.header_bytes);
    return GC_OK;
}

/* Makes the window hold `bytes` at `offset`, which the file has. */
static enum gc_status move_to(struct gc_source *source, uint64_t offset, size_t bytes)
{
    uint32_t kept = 0;
    const uint64_t end = source->window_start + source->window_bytes;
    if (offset >= source->window_start && offset <= end) {
        /* Going on: what is still wanted moves to the front, and the step grows. */
        kept = (uint32_t)(end - offset);
        memmove(source->window, source->window + (offset - source->window_start), kept);
        if (source->step < GC_SOURCE_WINDOW_BYTES / 2)
            source->step *= 2;
    } else {
        source->step = STEP_BYTES_MIN;
    }
    const uint64_t rest = source->bytes - offset - kept;
    uint64_t wanted = gc_min_u64(source->step, gc_sub_or_zero_u64(source->ahead, offset + kept));
    wanted = gc_max_u64(wanted, bytes - kept);
    wanted = gc_min_u64(gc_min_u64(wanted, rest), GC_SOURCE_WINDOW_BYTES - kept);
    source->window_start = offset;
    source->window_bytes = 0;
    return fill(source, offset + kept, kept, (uint32_t)wanted);
}

static bool at_hand(const struct gc_source *source, uint64_t offset, size_t bytes)
{
    return offset >= source->window_start &&
           offset - source->window_start <= source->window_bytes &&
           bytes <= source->window_bytes - (offset - source->window_start);
}

enum gc_status gc_source_view(struct gc_source *source, uint64_t offset, size_t bytes,
                              const char *what, const unsigned char **view)
{
    if (offset > source->bytes || bytes > source->bytes - offset)
        return gc_load_fail(source->load, GC_FORMAT, source->path,
                            "byte %llu: the file ends at byte %llu, within %s",
                            (unsigned long long)offset, (unsigned long long)source->bytes, what);
    if (!at_hand(source, offset, bytes)) {
        const enum gc_status status = move_to(source, offset, bytes);
        if (status != GC_OK)
            return status;
    }
    *view = source->window + (offset - source->window_start);
    return GC_OK;
}

enum gc_status gc_source_more(struct gc_source *source, uint64_t offset, const unsigned char **view,
                              size_t *count)
{
    *view = source->window;
    *count = 0;
    if (offset >= source->bytes)
        return GC_OK;
    const enum gc_status status = gc_source_view(source, offset, 1, "it", view);
    if (status == GC_OK)
        *count = source->window_bytes - (size_t)(offset - source->window_start);
    return status;
}
