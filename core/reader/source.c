/* Windowed reading with pread, and the folder a model's files must lie in. A file is opened
 * component by component (openat), without following links. A link as the last component is
 * followed only to a file of the same folder or, in a snapshot of a Hugging Face cache, to one of
 * its blobs. */
#define _GNU_SOURCE /* statx, AT_EMPTY_PATH */
#include "core/reader/source.h"

#include "core/base/bits.h"
#include "core/io/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_BYTES_MIN (4U << 10)

int gc_source_stat(int at, const char *name, int flags, uint32_t *mode, uint64_t *bytes)
{
    struct statx info;
    if (statx(at, name, flags, STATX_TYPE | STATX_SIZE, &info) != 0)
        return -1;
    *mode = info.stx_mode;
    *bytes = info.stx_size;
    return 0;
}

enum gc_status gc_source_fail(const struct gc_source *source, uint64_t offset, const char *format,
                              ...)
{
    char text[GC_MODEL_ERROR_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    return gc_reader_fail(source->reader, GC_FORMAT, source->path, "byte %llu: %s",
                          (unsigned long long)offset, text);
}

void gc_source_close(struct gc_source *source)
{
    struct gc_reader *reader = source->reader;
    if (source->window != NULL && reader->spare_window == NULL)
        reader->spare_window = source->window;
    else if (source->window != NULL)
        gc_host_mem_unmap(&reader->region.host, source->window, GC_SOURCE_WINDOW_BYTES);
    if (source->fd >= 0)
        close(source->fd);
    source->window = NULL;
    source->fd = -1;
}

/* Sets window and size for the file open as source->fd. */
static enum gc_status prepare(struct gc_source *source)
{
    uint32_t mode;
    if (gc_source_stat(source->fd, "", AT_EMPTY_PATH, &mode, &source->bytes) != 0)
        return gc_reader_fail(source->reader, GC_IO, source->path,
                              "its status cannot be read (errno %d)", errno);
    if (!S_ISREG(mode))
        return gc_reader_fail(source->reader, GC_IO, source->path,
                              "is no regular file; model files are");
    source->ahead = source->bytes;
    source->window = source->reader->spare_window;
    source->reader->spare_window = NULL;
    if (source->window == NULL)
        source->window = gc_host_mem_map(&source->reader->region.host, GC_SOURCE_WINDOW_BYTES);
    if (source->window == NULL)
        return gc_reader_no_memory(source->reader, source->path);
    source->step = STEP_BYTES_MIN;
    return GC_OK;
}

enum gc_status gc_source_open_fd(struct gc_reader *reader, const char *path, int fd,
                                 struct gc_source *source)
{
    *source = (struct gc_source){.reader = reader, .path = path, .fd = fd, .file = GC_MODEL_NONE};
    const enum gc_status status = prepare(source);
    if (status != GC_OK)
        gc_source_close(source);
    return status;
}

static enum gc_status open_source(struct gc_reader *reader, const char *path,
                                  struct gc_source *source)
{
    uint32_t mode;
    uint64_t bytes;
    *source = (struct gc_source){.reader = reader, .path = path, .fd = -1, .file = GC_MODEL_NONE};
    /* Check with statx first: opening a device can have side effects. */
    if (gc_source_stat(AT_FDCWD, path, 0, &mode, &bytes) != 0)
        return gc_reader_fail(reader, GC_IO, path, "%s",
                              errno == ENOENT ? "there is no such file or folder"
                                              : "its status cannot be read: permission or path");
    if (!S_ISREG(mode))
        return gc_reader_fail(reader, GC_IO, path, "is no regular file; model files are");
    const int fd = gc_writer_raise_fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd < 0)
        return gc_reader_fail(reader, GC_IO, path, "cannot be opened for reading (errno %d)",
                              errno);
    return gc_source_open_fd(reader, path, fd, source);
}

/* Reads at `offset` into the free part of the window: `step` bytes, or less at the end of the file.
 */
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
            return gc_reader_fail(source->reader, GC_IO, source->path,
                                  "byte %llu: cannot be read (errno %d)", at, errno);
        if (here == 0)
            return gc_reader_fail(source->reader, GC_IO, source->path,
                                  "byte %llu: the file became shorter while it was read", at);
        got += (uint32_t)here;
    }
    source->window_bytes = used + got;
    source->reader->header_bytes += got;
    if (source->reader->header_bytes > source->reader->limits.header_bytes)
        return gc_reader_fail(source->reader, GC_OUT_OF_RANGE, source->path,
                              "byte %llu: more than %llu bytes of headers; no model has so many",
                              (unsigned long long)offset,
                              (unsigned long long)source->reader->limits.header_bytes);
    return GC_OK;
}

/* Moves the window over `bytes` bytes at `offset`, which lie within the file. */
static enum gc_status move_to(struct gc_source *source, uint64_t offset, size_t bytes)
{
    uint32_t kept = 0;
    const uint64_t end = source->window_start + source->window_bytes;
    if (offset >= source->window_start && offset <= end) {
        /* Sequential reading: the bytes still needed move to the front, and the step grows. */
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
        return gc_reader_fail(source->reader, GC_FORMAT, source->path,
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

/* ---- files that a model names ---- */

#define OPEN_FILE (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW)
#define OPEN_FOLDER (O_RDONLY | O_CLOEXEC | O_DIRECTORY)

/* Opens "models--…/blobs" for a folder "models--…/snapshots/<revision>". The folder's real path
 * decides, so the path by which the caller opened the folder does not matter. */
static int open_blobs(int folder)
{
    char path[64];
    char target[PATH_MAX];
    const int blobs = openat(folder, "../../blobs", OPEN_FOLDER | O_NOFOLLOW);
    if (blobs < 0)
        return -1;
    /* "/proc/self/fd/" and the number. */
    char digits[12];
    size_t used = sizeof(digits);
    unsigned number = (unsigned)folder;
    digits[--used] = '\0';
    do {
        digits[--used] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    memcpy(path, "/proc/self/fd/", sizeof("/proc/self/fd/"));
    strcat(path, digits + used);
    const ssize_t length = readlink(path, target, sizeof(target) - 1);
    target[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(target, '/');
    if (slash != NULL) {
        *slash = '\0';
        slash = strrchr(target, '/');
    }
    if (slash != NULL && strcmp(slash, "/snapshots") == 0)
        return blobs;
    close(blobs);
    return -1;
}

enum gc_status gc_source_open_folder(struct gc_reader *reader, const char *path,
                                     struct gc_folder *folder)
{
    *folder = (struct gc_folder){.path = path, .fd = open(path, OPEN_FOLDER), .shared = -1};
    if (folder->fd < 0)
        return gc_reader_fail(reader, GC_IO, path, "the folder cannot be opened (errno %d)", errno);
    folder->shared = open_blobs(folder->fd);
    return GC_OK;
}

void gc_source_close_folder(struct gc_folder *folder)
{
    if (folder->fd >= 0)
        close(folder->fd);
    if (folder->shared >= 0)
        close(folder->shared);
    folder->fd = -1;
    folder->shared = -1;
}

bool gc_source_folder_has(const struct gc_folder *folder, const char *name)
{
    uint32_t mode;
    uint64_t bytes;
    return gc_source_stat(folder->fd, name, AT_SYMLINK_NOFOLLOW, &mode, &bytes) == 0;
}

static bool is_plain_part(const char *part, size_t length)
{
    return length > 0 && length <= NAME_MAX && !(length == 1 && part[0] == '.') &&
           !(length == 2 && part[0] == '.' && part[1] == '.');
}

/* The reason why a name cannot be inside the folder, or NULL. The caller skips a leading "./". */
static const char *name_fault(const char *name)
{
    if (*name == '/')
        return "is an absolute path";
    if (strlen(name) >= PATH_MAX)
        return "is too long for a path";
    while (*name != '\0') {
        const size_t length = strcspn(name, "/");
        if (length == 2 && memcmp(name, "..", 2) == 0)
            return "leaves the model's folder";
        if (!is_plain_part(name, length))
            return "has an empty part or one that is too long";
        name += length;
        if (*name == '/' && *++name == '\0')
            return "ends in '/'";
    }
    return NULL;
}

/* Opens a regular file, after checking with statx that it is one. */
static int open_file(int folder, const char *name)
{
    uint32_t mode;
    uint64_t bytes;
    if (gc_source_stat(folder, name, AT_SYMLINK_NOFOLLOW, &mode, &bytes) != 0)
        return -1;
    if (S_ISLNK(mode)) {
        errno = ELOOP;
        return -1;
    }
    if (!S_ISREG(mode)) {
        errno = EISDIR;
        return -1;
    }
    return openat(folder, name, OPEN_FILE);
}

/* Opens the target of a link in `parent` if the link is allowed; else -1 with ELOOP. */
static int open_link(const struct gc_folder *folder, int parent, const char *name)
{
    static const char blobs[] = "../../blobs/";
    char target[PATH_MAX];
    const ssize_t length = readlinkat(parent, name, target, sizeof(target) - 1);
    errno = ELOOP;
    if (length <= 0 || (size_t)length >= sizeof(target) - 1)
        return -1;
    target[length] = '\0';
    const char *file = target;
    if (folder->shared >= 0 && parent == folder->fd &&
        strncmp(target, blobs, sizeof(blobs) - 1) == 0) {
        file += sizeof(blobs) - 1;
        parent = folder->shared;
    }
    if (!is_plain_part(file, strlen(file)) || strchr(file, '/') != NULL)
        return -1;
    return open_file(parent, file);
}

static int open_within(const struct gc_folder *folder, const char *name)
{
    char part[NAME_MAX + 1];
    int parent = folder->fd;
    for (;;) {
        const size_t length = strcspn(name, "/");
        memcpy(part, name, length);
        part[length] = '\0';
        if (name[length] == '\0')
            break;
        const int next = openat(parent, part, OPEN_FOLDER | O_NOFOLLOW);
        const int error = errno;
        if (parent != folder->fd)
            close(parent);
        errno = error == ENOTDIR ? ELOOP : error;
        if (next < 0)
            return -1;
        parent = next;
        name += length + 1;
    }
    int fd = open_file(parent, part);
    if (fd < 0 && errno == ELOOP)
        fd = open_link(folder, parent, part);
    const int error = errno;
    if (parent != folder->fd)
        close(parent);
    errno = error;
    return fd;
}

static const char *why_not(int error)
{
    switch (error) {
    case ENOENT:
        return "is not there";
    case ELOOP:
        return "is, or lies behind, a link out of the model's folder";
    case EISDIR:
        return "is no regular file";
    default:
        return "cannot be opened";
    }
}

/* "folder/name", in the region. */
static const char *join(struct gc_reader *reader, const struct gc_folder *folder, const char *name)
{
    const size_t folder_length = strlen(folder->path);
    const size_t name_length = strlen(name);
    char *path = gc_reader_alloc(reader, folder->path, folder_length + name_length + 2);
    if (path == NULL)
        return NULL;
    memcpy(path, folder->path, folder_length);
    size_t used = folder_length;
    if (used > 0 && path[used - 1] != '/')
        path[used++] = '/';
    memcpy(path + used, name, name_length + 1);
    return path;
}

/* A descriptor, or -1 after writing the error. */
static int open_named(struct gc_reader *reader, const struct gc_folder *folder, const char *name,
                      const char *named_by, const char *place)
{
    while (name[0] == '.' && name[1] == '/')
        name += 2;
    const char *fault = *name == '\0' ? "is empty" : name_fault(name);
    int fd = -1;
    if (fault == NULL) {
        fd = open_within(folder, name);
        if (fd < 0)
            fault = why_not(errno);
    }
    if (fd < 0)
        (void)gc_reader_fail(reader, GC_FORMAT, named_by,
                             "%s: the file \"%s\" %s; files of the model's own folder are accepted",
                             place, GC_READER_SHOWN(name, strlen(name)), fault);
    return fd;
}

enum gc_status gc_source_open_with_folder(struct gc_reader *reader, const char *path,
                                          struct gc_source *source, struct gc_folder *folder,
                                          const char **name)
{
    const char *slash = strrchr(path, '/');
    *name = slash != NULL ? slash + 1 : path;
    /* "a/b" lies in "a", "/b" in "/", "b" in ".". */
    const char *parent = slash == NULL ? "."
                         : slash == path
                             ? "/"
                             : gc_region_text(&reader->region, path, (size_t)(slash - path));
    if (parent == NULL)
        return gc_reader_no_memory(reader, path);
    enum gc_status status = open_source(reader, path, source);
    if (status != GC_OK)
        return status;
    status = gc_source_open_folder(reader, parent, folder);
    if (status != GC_OK)
        gc_source_close(source);
    return status;
}

enum gc_status gc_source_open_in(struct gc_reader *reader, const struct gc_folder *folder,
                                 const char *name, const char *named_by, const char *place,
                                 struct gc_source *source)
{
    *source = (struct gc_source){.reader = reader, .fd = -1, .file = GC_MODEL_NONE};
    const char *path = join(reader, folder, name);
    if (path == NULL)
        return GC_NO_HOST_MEMORY;
    const int fd = open_named(reader, folder, name, named_by, place);
    return fd < 0 ? GC_FORMAT : gc_source_open_fd(reader, path, fd, source);
}

enum gc_status gc_source_size_in(struct gc_reader *reader, const struct gc_folder *folder,
                                 const char *name, const char *named_by, const char *place,
                                 const char **path, uint64_t *bytes)
{
    uint32_t mode;
    *path = join(reader, folder, name);
    if (*path == NULL)
        return GC_NO_HOST_MEMORY;
    const int fd = open_named(reader, folder, name, named_by, place);
    if (fd < 0)
        return GC_FORMAT;
    const int got = gc_source_stat(fd, "", AT_EMPTY_PATH, &mode, bytes);
    close(fd);
    if (got != 0 || !S_ISREG(mode))
        return gc_reader_fail(reader, GC_FORMAT, named_by,
                              "%s: the file \"%s\" is no regular file; model files are", place,
                              GC_READER_SHOWN(name, strlen(name)));
    return GC_OK;
}
