/* How much host memory there is to take: what the machine has available, and what the control
 * groups of the process leave, in containers and batch jobs. Both layouts of the group files (v2:
 * "0::PATH" in /proc/self/cgroup and memory.max; v1: "N:memory:PATH" and memory.limit_in_bytes). A
 * group's own limit and those of all above it count; its page cache that nobody uses counts as
 * free. */
#include "core/base/host_mem.h"
#include "core/io/writer.h"

#include "core/base/bits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 1024
#define FILE_BYTES 4096

/* The files of one layout. */
struct layout {
    const char *mark; /* stands before the path in /proc/self/cgroup */
    const char *folder;
    const char *limit;
    const char *usage;
    const char *cache; /* in memory.stat */
};

static const struct layout layouts[] = {
    {"0::", "/sys/fs/cgroup", "memory.max", "memory.current", "\ninactive_file "},
    {":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "\ntotal_inactive_file "},
};

/* More than a small thread's stack has. */
struct room_work {
    char path[2 * PATH_BYTES];
    char folder[PATH_BYTES];
    char groups[FILE_BYTES];
    char text[FILE_BYTES];
};

/* A text file's beginning, behind a line's end; false: there is none. */
static bool read_text(const char *path, char *text)
{
    const int saved_errno = errno;
    const int fd = gc_writer_raise_fd(open(path, O_RDONLY | O_CLOEXEC));
    const ssize_t got = fd < 0 ? -1 : read(fd, text + 1, FILE_BYTES - 2);
    if (fd >= 0)
        close(fd);
    errno = saved_errno;
    text[0] = '\n';
    text[got > 0 ? got + 1 : 1] = '\0';
    return got > 0;
}

/* The number behind `name`; false: there is none ("max"). */
static bool find_number(const char *text, const char *name, uint64_t *number)
{
    const char *at = strstr(text, name);
    if (at == NULL)
        return false;
    at += strlen(name);
    while (*at == ' ')
        at++;
    if (*at < '0' || *at > '9')
        return false;
    for (*number = 0; *at >= '0' && *at <= '9'; at++) {
        const uint64_t digit = (uint64_t)(*at - '0');
        if (*number > (UINT64_MAX - digit) / 10)
            return false;
        *number = *number * 10 + digit;
    }
    return true;
}

/* Of a file in `folder`. */
static bool read_number(struct room_work *work, const char *file, const char *name,
                        uint64_t *number)
{
    const int length = snprintf(work->path, sizeof(work->path), "%s/%s", work->folder, file);
    return length > 0 && (size_t)length < sizeof(work->path) && read_text(work->path, work->text) &&
           find_number(work->text, name, number);
}

/* What the group of `folder` leaves. */
static uint64_t room_of(struct room_work *work, const struct layout *layout)
{
    uint64_t limit;
    uint64_t usage;
    uint64_t cache = 0;
    if (!read_number(work, layout->limit, "\n", &limit) ||
        !read_number(work, layout->usage, "\n", &usage))
        return UINT64_MAX;
    (void)read_number(work, "memory.stat", layout->cache, &cache);
    return gc_sub_or_zero_u64(limit, gc_sub_or_zero_u64(usage, cache));
}

/* The least that the group and those above it leave. */
static uint64_t room_below(struct room_work *work, const char *root, const struct layout *layout)
{
    char *folder = work->folder;
    uint64_t least = UINT64_MAX;
    const char *path = strstr(work->groups, layout->mark);
    if (path == NULL)
        return least;
    path += strlen(layout->mark);
    const int base = snprintf(folder, PATH_BYTES, "%s%s", root, layout->folder);
    const size_t length = strcspn(path, "\n");
    if (base < 0 || (size_t)base + length >= PATH_BYTES)
        return least;
    memcpy(folder + base, path, length);
    folder[(size_t)base + length] = '\0';
    for (char *end = folder + base + length;;) {
        while (end > folder + base && end[-1] == '/')
            *--end = '\0';
        least = gc_min_u64(least, room_of(work, layout));
        if (end == folder + base)
            return least;
        while (end > folder + base && end[-1] != '/')
            end--;
    }
}

static uint64_t available_under(struct room_work *work, const char *root)
{
    uint64_t kilobytes = 0;
    (void)snprintf(work->path, sizeof(work->path), "%s/proc/meminfo", root);
    if (!read_text(work->path, work->text) ||
        !find_number(work->text, "\nMemAvailable:", &kilobytes))
        return 0;
    uint64_t least = kilobytes > UINT64_MAX / 1024 ? UINT64_MAX : kilobytes * 1024;
    (void)snprintf(work->path, sizeof(work->path), "%s/proc/self/cgroup", root);
    if (!read_text(work->path, work->groups))
        return least;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        least = gc_min_u64(least, room_below(work, root, &layouts[i]));
    return least;
}

uint64_t gc_meminfo_available_under(const char *root)
{
    struct gc_host_mem host = {0};
    struct room_work *work = gc_host_mem_map(&host, sizeof(*work));
    if (work == NULL)
        return 0;
    const uint64_t least = available_under(work, root);
    gc_host_mem_unmap(&host, work, sizeof(*work));
    return least;
}

uint64_t gc_meminfo_available_bytes(void)
{
    return gc_meminfo_available_under("");
}
