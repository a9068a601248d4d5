/* Files that a model names, opened so that they cannot lie elsewhere: one folder of the name after
 * the other, links not followed. A link in the last place is read and obeyed only where it leads to
 * a file of the same folder, or, in a snapshot of a Hugging Face cache, to one of its blobs. */
#define _GNU_SOURCE /* statx, AT_EMPTY_PATH */
#include "core/formats/source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_FILE (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW)
#define OPEN_FOLDER (O_RDONLY | O_CLOEXEC | O_DIRECTORY)

/* "models--…/snapshots/<revision>" has "models--…/blobs" beside it. Looked for from the folder
 * itself, whatever path led there. */
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

enum gc_status gc_folder_open(struct gc_load *load, const char *path, struct gc_folder *folder)
{
    *folder = (struct gc_folder){.path = path, .fd = open(path, OPEN_FOLDER), .shared = -1};
    if (folder->fd < 0)
        return gc_load_fail(load, GC_IO, path, "the folder cannot be opened (errno %d)", errno);
    folder->shared = open_blobs(folder->fd);
    return GC_OK;
}

void gc_folder_close(struct gc_folder *folder)
{
    if (folder->fd >= 0)
        close(folder->fd);
    if (folder->shared >= 0)
        close(folder->shared);
    folder->fd = -1;
    folder->shared = -1;
}

bool gc_folder_has(const struct gc_folder *folder, const char *name)
{
    uint32_t mode;
    uint64_t bytes;
    return gc_source_look(folder->fd, name, AT_SYMLINK_NOFOLLOW, &mode, &bytes) == 0;
}

static bool is_plain_part(const char *part, size_t length)
{
    return length > 0 && length <= NAME_MAX && !(length == 1 && part[0] == '.') &&
           !(length == 2 && part[0] == '.' && part[1] == '.');
}

/* Why a name cannot be within the folder, or NULL. "./" before it is common and means nothing. */
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

/* Opens a regular file, which is looked at first. */
static int open_file(int folder, const char *name)
{
    uint32_t mode;
    uint64_t bytes;
    if (gc_source_look(folder, name, AT_SYMLINK_NOFOLLOW, &mode, &bytes) != 0)
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

/* The file behind a link in `parent`, if it is one that is obeyed; else -1 with ELOOP. */
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
static const char *join(struct gc_load *load, const struct gc_folder *folder, const char *name)
{
    const size_t folder_length = strlen(folder->path);
    const size_t name_length = strlen(name);
    char *path = gc_load_alloc(load, folder->path, folder_length + name_length + 2);
    if (path == NULL)
        return NULL;
    memcpy(path, folder->path, folder_length);
    size_t used = folder_length;
    if (used > 0 && path[used - 1] != '/')
        path[used++] = '/';
    memcpy(path + used, name, name_length + 1);
    return path;
}

/* A descriptor, or -1 with the error written. */
static int open_named(struct gc_load *load, const struct gc_folder *folder, const char *name,
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
        (void)gc_load_fail(load, GC_FORMAT, named_by,
                           "%s: the file \"%s\" %s; files of the model's own folder are accepted",
                           place, GC_LOAD_SHOWN(name, strlen(name)), fault);
    return fd;
}

enum gc_status gc_source_open_with_folder(struct gc_load *load, const char *path,
                                          struct gc_source *source, struct gc_folder *folder,
                                          const char **name)
{
    const char *slash = strrchr(path, '/');
    *name = slash != NULL ? slash + 1 : path;
    /* "a/b" lies in "a", "/b" in "/", "b" in ".". */
    const char *parent = slash == NULL ? "."
                         : slash == path
                             ? "/"
                             : gc_region_text(&load->region, path, (size_t)(slash - path));
    if (parent == NULL)
        return gc_load_no_memory(load, path);
    enum gc_status status = gc_source_open(load, path, source);
    if (status != GC_OK)
        return status;
    status = gc_folder_open(load, parent, folder);
    if (status != GC_OK)
        gc_source_close(source);
    return status;
}

enum gc_status gc_source_open_in(struct gc_load *load, const struct gc_folder *folder,
                                 const char *name, const char *named_by, const char *place,
                                 struct gc_source *source)
{
    *source = (struct gc_source){.load = load, .fd = -1, .file = GC_MODEL_NONE};
    const char *path = join(load, folder, name);
    if (path == NULL)
        return GC_NO_HOST_MEMORY;
    const int fd = open_named(load, folder, name, named_by, place);
    return fd < 0 ? GC_FORMAT : gc_source_take(load, path, fd, source);
}

enum gc_status gc_source_size_in(struct gc_load *load, const struct gc_folder *folder,
                                 const char *name, const char *named_by, const char *place,
                                 const char **path, uint64_t *bytes)
{
    uint32_t mode;
    *path = join(load, folder, name);
    if (*path == NULL)
        return GC_NO_HOST_MEMORY;
    const int fd = open_named(load, folder, name, named_by, place);
    if (fd < 0)
        return GC_FORMAT;
    const int got = gc_source_look(fd, "", AT_EMPTY_PATH, &mode, bytes);
    close(fd);
    if (got != 0 || !S_ISREG(mode))
        return gc_load_fail(load, GC_FORMAT, named_by,
                            "%s: the file \"%s\" is no regular file; model files are", place,
                            GC_LOAD_SHOWN(name, strlen(name)));
    return GC_OK;
}
