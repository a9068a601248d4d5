/* The ledger's file: opened or created, and checked completely before any content is used. The
 * folder is opened first and everything else is relative to it, so that nothing can be exchanged in
 * between. A new file is filled under a temporary name and then renamed: no process sees it half
 * filled. */
#define _GNU_SOURCE
#include "core/ledger/ledger.h"

#include "core/io/text.h"
#include "core/io/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILE_NAME_BYTES 96
#define OPEN_ATTEMPTS 8 /* others may create or remove the file concurrently */

struct opening {
    struct gc_ledger *ledger;
    char *reason;
    char folder[GC_LEDGER_PATH_BYTES];
    char name[FILE_NAME_BYTES];
    uint32_t owner; /* UID */
    int folder_fd;
    bool create;
};

__attribute__((format(printf, 3, 4))) static enum gc_status fail(struct opening *opening,
                                                                 enum gc_status status,
                                                                 const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(opening->reason, GC_LEDGER_REASON_BYTES, format, arguments);
    va_end(arguments);
    return status;
}

static enum gc_status fail_folder(struct opening *opening, const char *what)
{
    return fail(opening, GC_IO,
                "%.256s: %.80s (accepted: a folder of your own that only you can enter, mode 0700)",
                opening->folder, what);
}

static enum gc_status fail_file(struct opening *opening, enum gc_status status, const char *what)
{
    return fail(opening, status,
                "%.256s/%s: %.80s (accepted: a regular file of your own, mode 0600, made by this "
                "version; remove it when no program uses it)",
                opening->folder, opening->name, what);
}

/* ---- the folder ---- */

/* statx is an old libc symbol; fstat is a newer one. */
static int read_facts(int fd, struct statx *facts)
{
    return statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, facts);
}

static uint64_t device_number(const struct statx *facts)
{
    return (uint64_t)facts->stx_dev_major << 32 | facts->stx_dev_minor;
}

static enum gc_status open_folder(struct opening *opening)
{
    struct statx facts;
    if (opening->create && mkdir(opening->folder, 0700) != 0 && errno != EEXIST)
        return fail_folder(opening, strerror(errno));
    opening->folder_fd =
        open(opening->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (opening->folder_fd < 0 && errno == ENOENT && !opening->create)
        return GC_NOT_OURS;
    if (opening->folder_fd < 0)
        return fail_folder(opening, errno == ELOOP || errno == ENOTDIR
                                        ? "it is a symbolic link, or not a folder"
                                        : strerror(errno));
    if (read_facts(opening->folder_fd, &facts) != 0)
        return fail_folder(opening, strerror(errno));
    if (facts.stx_uid != opening->owner)
        return fail_folder(opening, "it belongs to another user");
    if ((facts.stx_mode & 077) != 0)
        return fail_folder(opening, "others may enter or read it");
    return GC_OK;
}

/* ---- the required properties ---- */

static const char *wrong_with(const struct statx *facts, uint32_t owner)
{
    if (!S_ISREG(facts->stx_mode))
        return "it is not a regular file";
    if (facts->stx_uid != owner)
        return "it belongs to another user";
    if ((facts->stx_mode & 07777) != 0600)
        return "its mode is not 0600";
    if (facts->stx_nlink != 1)
        return "it has other names too";
    if (facts->stx_size != sizeof(struct gc_ledger_file))
        return "its size is wrong";
    return NULL;
}

/* The head of the file, read before it is mapped: its owner may cut it short at any time, and an
 * access to a mapping would then end this process. */
static const char *find_fault(int fd)
{
    struct {
        uint64_t magic;
        uint32_t version;
        uint32_t slot_bytes;
        uint64_t file_bytes;
        uint32_t slot_count;
        uint32_t device_count;
        uint32_t group_count;
    } head;
    _Static_assert(offsetof(struct gc_ledger_file, group_count) ==
                       offsetof(__typeof__(head), group_count),
                   "the head begins the file");
    if (pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) || head.magic != GC_LEDGER_MAGIC)
        return "it is not a ledger";
    if (head.version != GC_LEDGER_VERSION)
        return "it is of another version";
    if (head.slot_bytes != sizeof(struct gc_ledger_slot) ||
        head.file_bytes != sizeof(struct gc_ledger_file) || head.slot_count != GC_LEDGER_SLOTS ||
        head.device_count != GC_LEDGER_DEVICES || head.group_count != GC_LEDGER_GROUPS)
        return "it has another layout";
    return NULL;
}

static struct gc_ledger_file *map_file(int fd)
{
    void *file =
        mmap(NULL, sizeof(struct gc_ledger_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return file == MAP_FAILED ? NULL : file;
}

/* ---- an existing file ---- */

static enum gc_status accept_file(struct opening *opening, int fd)
{
    struct statx facts;
    if (read_facts(fd, &facts) != 0)
        return fail_file(opening, GC_IO, strerror(errno));
    const char *wrong = wrong_with(&facts, opening->owner);
    if (wrong != NULL)
        return fail_file(opening, GC_FORMAT, wrong);
    wrong = find_fault(fd);
    if (wrong != NULL)
        return fail_file(opening, GC_FORMAT, wrong);
    struct gc_ledger_file *file = map_file(fd);
    if (file == NULL)
        return fail_file(opening, GC_IO, strerror(errno));
    /* A mapping keeps the file open, and with it the locks: a child must not inherit it. */
    (void)madvise(file, sizeof(*file), MADV_DONTFORK);
    opening->ledger->file = file;
    opening->ledger->device_number = device_number(&facts);
    opening->ledger->file_number = facts.stx_ino;
    return GC_OK;
}

/* GC_NOT_OURS: there is no file. */
static enum gc_status open_existing(struct opening *opening)
{
    const int fd =
        gc_writer_raise_fd(openat(opening->folder_fd, opening->name,
                                  O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd < 0 && errno == ENOENT)
        return GC_NOT_OURS;
    if (fd < 0)
        return fail_file(opening, GC_IO,
                         errno == ELOOP ? "it is a symbolic link" : strerror(errno));
    const enum gc_status status = accept_file(opening, fd);
    if (status == GC_OK)
        opening->ledger->fd = fd;
    else
        close(fd);
    return status;
}

/* ---- a new file ---- */

/* Allocates the memory of the head and the tables of devices and groups here, so that exhaustion is
 * an error now and not a signal later. */
static const char *fill(int fd)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < sizeof(struct gc_ledger_file))
        return "the limit of file sizes (ulimit -f) is too low";
    if (fchmod(fd, 0600) != 0 || ftruncate(fd, 0) != 0 ||
        ftruncate(fd, (off_t)sizeof(struct gc_ledger_file)) != 0)
        return strerror(errno);
    if (fallocate(fd, 0, 0, (off_t)offsetof(struct gc_ledger_file, accounts)) != 0 &&
        errno != EOPNOTSUPP)
        return strerror(errno);
    struct gc_ledger_file *file = map_file(fd);
    if (file == NULL)
        return strerror(errno);
    file->magic = GC_LEDGER_MAGIC;
    file->version = GC_LEDGER_VERSION;
    file->slot_bytes = sizeof(struct gc_ledger_slot);
    file->file_bytes = sizeof(*file);
    file->slot_count = GC_LEDGER_SLOTS;
    file->device_count = GC_LEDGER_DEVICES;
    file->group_count = GC_LEDGER_GROUPS;
    munmap(file, sizeof(*file));
    return NULL;
}

/* Also succeeds where another process was faster. */
static enum gc_status make_file(struct opening *opening)
{
    char temporary[FILE_NAME_BYTES];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(temporary, sizeof(temporary), ".ledger-%ld-%ld-%ld", (long)getpid(), (long)now.tv_sec,
             (long)now.tv_nsec);
    const int fd = gc_writer_raise_fd(openat(
        opening->folder_fd, temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd < 0) {
        const int error = errno;
        /* If only gc_writer_raise_fd failed, the file exists. */
        unlinkat(opening->folder_fd, temporary, 0);
        return fail_file(opening, GC_IO, strerror(error));
    }
    const char *wrong = fill(fd);
    close(fd);
    if (wrong == NULL && renameat2(opening->folder_fd, temporary, opening->folder_fd, opening->name,
                                   RENAME_NOREPLACE) == 0)
        return GC_OK;
    const bool was_faster = wrong == NULL && errno == EEXIST;
    if (wrong == NULL)
        wrong = strerror(errno);
    unlinkat(opening->folder_fd, temporary, 0);
    return was_faster ? GC_OK : fail_file(opening, GC_IO, wrong);
}

static enum gc_status open_or_make(struct opening *opening)
{
    enum gc_status status = open_existing(opening);
    for (int i = 0; status == GC_NOT_OURS && opening->create && i < OPEN_ATTEMPTS; i++) {
        status = make_file(opening);
        if (status == GC_OK)
            status = open_existing(opening);
    }
    if (status == GC_NOT_OURS && opening->create)
        return fail_file(opening, GC_IO, "another process keeps removing it");
    return status;
}

static enum gc_status open_ledger(const char *folder, uint32_t owner, bool create,
                                  struct gc_ledger *ledger, char reason[GC_LEDGER_REASON_BYTES])
{
    struct opening opening = {
        .ledger = ledger, .reason = reason, .owner = owner, .folder_fd = -1, .create = create};
    const int saved_errno = errno;
    *ledger = (struct gc_ledger){.fd = -1, .own = GC_LEDGER_NONE};
    reason[0] = '\0';
    if (!gc_text_copy(opening.folder, sizeof(opening.folder), folder, strlen(folder)))
        return fail(&opening, GC_IO, "%.80s...: the path is too long", folder);
    snprintf(opening.name, sizeof(opening.name), "ledger-%d", GC_LEDGER_VERSION);
    snprintf(ledger->path, sizeof(ledger->path), "%.4090s/%s", opening.folder, opening.name);
    enum gc_status status = open_folder(&opening);
    if (status == GC_OK)
        status = open_or_make(&opening);
    if (opening.folder_fd >= 0)
        close(opening.folder_fd);
    errno = saved_errno;
    return status;
}

enum gc_status gc_ledger_open(const char *folder, bool create, struct gc_ledger *ledger,
                              char reason[GC_LEDGER_REASON_BYTES])
{
    return open_ledger(folder, geteuid(), create, ledger, reason);
}

enum gc_status gc_ledger_open_of(const char *folder, uint32_t owner, struct gc_ledger *ledger,
                                 char reason[GC_LEDGER_REASON_BYTES])
{
    return open_ledger(folder, owner, false, ledger, reason);
}

/* The place must be sticky: else other users could exchange each other's folders. */
static bool has_place(const char *place)
{
    struct statx facts;
    return statx(AT_FDCWD, place, 0, STATX_BASIC_STATS, &facts) == 0 && S_ISDIR(facts.stx_mode) &&
           (facts.stx_mode & S_ISVTX) != 0 &&
           faccessat(AT_FDCWD, place, W_OK | X_OK, AT_EACCESS) == 0;
}

const char *gc_ledger_folder(const char *given, const char *node, char folder[GC_LEDGER_PATH_BYTES])
{
    const int saved_errno = errno;
    if (given[0] != '\0')
        return given;
    snprintf(folder, GC_LEDGER_PATH_BYTES, "%.4080s/users", node);
    const size_t length = strlen(folder);
    if (has_place(folder))
        snprintf(folder + length, GC_LEDGER_PATH_BYTES - length, "/%lu", (unsigned long)geteuid());
    else
        snprintf(folder, GC_LEDGER_PATH_BYTES, "/dev/shm/gpucache-%lu", (unsigned long)geteuid());
    errno = saved_errno;
    return folder;
}

void gc_ledger_close(struct gc_ledger *ledger)
{
    if (ledger->file != NULL)
        munmap(ledger->file, sizeof(*ledger->file));
    if (ledger->fd >= 0)
        close(ledger->fd);
    *ledger = (struct gc_ledger){.fd = -1, .own = GC_LEDGER_NONE};
}

bool gc_ledger_is_intact(const struct gc_ledger *ledger)
{
    struct statx facts;
    const int saved_errno = errno;
    const bool is_intact = ledger->fd >= 0 && read_facts(ledger->fd, &facts) == 0 &&
                           device_number(&facts) == ledger->device_number &&
                           facts.stx_ino == ledger->file_number;
    errno = saved_errno;
    return is_intact;
}

bool gc_ledger_is_removed(const struct gc_ledger *ledger)
{
    struct statx facts;
    const int saved_errno = errno;
    const bool is_removed = ledger->fd >= 0 && read_facts(ledger->fd, &facts) == 0 &&
                            device_number(&facts) == ledger->device_number &&
                            facts.stx_ino == ledger->file_number && facts.stx_nlink == 0;
    errno = saved_errno;
    return is_removed;
}

bool gc_ledger_repair(struct gc_ledger *ledger)
{
    const int saved_errno = errno;
    const int lost = ledger->fd;
    ledger->fd =
        gc_writer_raise_fd(open(ledger->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    const bool is_repaired = gc_ledger_is_intact(ledger);
    if (!is_repaired) {
        if (ledger->fd >= 0)
            close(ledger->fd);
        ledger->fd = lost; /* another file's number: do not close it */
    }
    errno = saved_errno;
    return is_repaired;
}
