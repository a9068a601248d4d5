/* How much host memory there is to take: what the machine has available, and what the control
 * groups of the process leave, in containers and batch jobs. Both layouts of the group files (v2:
 * "0::PATH" in /proc/self/cgroup and memory.max; v1: "N:memory:PATH" and memory.limit_in_bytes). A
 * group's own limit and those of all above it count; its page cache that nobody uses counts as
 * free. */
#include "core/host.h"

#include "core/bits.h"

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

/* A text file's beginning, behind a line's end; false: there is none. */
static bool read_text(const char *path, char *text)
{
    const int saved_errno = errno;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
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

static bool read_number(const char *folder, const char *file, const char *name, char *text,
                        uint64_t *number)
{
    char path[2 * PATH_BYTES];
    const int length = snprintf(path, sizeof(path), "%s/%s", folder, file);
    return length > 0 && (size_t)length < sizeof(path) && read_text(path, text) &&
           find_number(text, name, number);
}

/* What one group leaves. */
static uint64_t room_of(const char *folder, const struct layout *layout)
{
    char text[FILE_BYTES];
    uint64_t limit;
    uint64_t usage;
    uint64_t cache = 0;
    if (!read_number(folder, layout->limit, "\n", text, &limit) ||
        !read_number(folder, layout->usage, "\n", text, &usage))
        return UINT64_MAX;
    (void)read_number(folder, "memory.stat", layout->cache, text, &cache);
    return gc_sub_or_zero_u64(limit, gc_sub_or_zero_u64(usage, cache));
}

/* The least that the group and those above it leave. */
static uint64_t room_below(const char *root, const char *groups, const struct layout *layout)
{
    char folder[PATH_BYTES];
    uint64_t least = UINT64_MAX;
    const char *path = strstr(groups, layout->mark);
    if (path == NULL)
        return least;
    path += strlen(layout->mark);
    const int base = snprintf(folder, sizeof(folder), "%s%s", root, layout->folder);
    const size_t length = strcspn(path, "\n");
    if (base < 0 || (size_t)base + length >= sizeof(folder))
        return least;
    memcpy(folder + base, path, length);
    folder[(size_t)base + length] = '\0';
    for (char *end = folder + base + length;;) {
        while (end > folder + base && end[-1] == '/')
            *--end = '\0';
        least = gc_min_u64(least, room_of(folder, layout));
        if (end == folder + base)
            return least;
        while (end > folder + base && end[-1] != '/')
            end--;
    }
}

uint64_t gc_host_available_under(const char *root)
{
    char path[PATH_BYTES];
    char text[FILE_BYTES];
    uint64_t kilobytes = 0;
    (void)snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    if (!read_text(path, text) || !find_number(text, "\nMemAvailable:", &kilobytes))
        return 0;
    uint64_t least = kilobytes > UINT64_MAX / 1024 ? UINT64_MAX : kilobytes * 1024;
    (void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    if (!read_text(path, text))
        return least;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        least = gc_min_u64(least, room_below(root, text, &layouts[i]));
    return least;
}

uint64_t gc_host_available_bytes(void)
{
    return gc_host_available_under("");
}
