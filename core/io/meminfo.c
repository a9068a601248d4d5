#include "core/io/meminfo.h"

#include "core/base/bits.h"
#include "core/base/host_mem.h"
#include "core/io/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 1024
#define FILE_BYTES 4096

/* The files of one cgroup layout. */
struct layout {
    const char *mark; /* precedes the path in /proc/self/cgroup */
    const char *folder;
    const char *limit;
    const char *usage;
    const char *cache; /* key in memory.stat */
};

static const struct layout layouts[] = {
    {"0::", "/sys/fs/cgroup", "memory.max", "memory.current", "\ninactive_file "},
    {":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "\ntotal_inactive_file "},
};

/* Buffers: too large for a thread with a small stack. */
struct scratch {
    char path[2 * PATH_BYTES];
    char folder[PATH_BYTES];
    char groups[FILE_BYTES];
    char text[FILE_BYTES];
};

/* Sets `text` to a line break and the beginning of the file. False: the file cannot be read. */
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

/* Finds the number after `name`. False: there is none ("max"). */
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

/* Finds a number in a file of the group's folder. */
static bool read_number(struct scratch *scratch, const char *file, const char *name,
                        uint64_t *number)
{
    const int length =
        snprintf(scratch->path, sizeof(scratch->path), "%s/%s", scratch->folder, file);
    return length > 0 && (size_t)length < sizeof(scratch->path) &&
           read_text(scratch->path, scratch->text) && find_number(scratch->text, name, number);
}

/* The bytes that the limit of the group in `folder` leaves. */
static uint64_t left_by_group(struct scratch *scratch, const struct layout *layout)
{
    uint64_t limit;
    uint64_t usage;
    uint64_t cache = 0;
    if (!read_number(scratch, layout->limit, "\n", &limit) ||
        !read_number(scratch, layout->usage, "\n", &usage))
        return UINT64_MAX;
    (void)read_number(scratch, "memory.stat", layout->cache, &cache);
    return gc_sub_or_zero_u64(limit, gc_sub_or_zero_u64(usage, cache));
}

/* The minimum over the group and all groups above it. */
static uint64_t least_left(struct scratch *scratch, const char *root, const struct layout *layout)
{
    char *folder = scratch->folder;
    uint64_t least = UINT64_MAX;
    const char *path = strstr(scratch->groups, layout->mark);
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
        least = gc_min_u64(least, left_by_group(scratch, layout));
        if (end == folder + base)
            return least;
        while (end > folder + base && end[-1] != '/')
            end--;
    }
}

static uint64_t available_under(struct scratch *scratch, const char *root)
{
    uint64_t kilobytes = 0;
    (void)snprintf(scratch->path, sizeof(scratch->path), "%s/proc/meminfo", root);
    if (!read_text(scratch->path, scratch->text) ||
        !find_number(scratch->text, "\nMemAvailable:", &kilobytes))
        return 0;
    uint64_t least = kilobytes > UINT64_MAX / 1024 ? UINT64_MAX : kilobytes * 1024;
    (void)snprintf(scratch->path, sizeof(scratch->path), "%s/proc/self/cgroup", root);
    if (!read_text(scratch->path, scratch->groups))
        return least;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        least = gc_min_u64(least, least_left(scratch, root, &layouts[i]));
    return least;
}

uint64_t gc_meminfo_available_under(const char *root)
{
    struct gc_host_mem host = {0};
    struct scratch *scratch = gc_host_mem_map(&host, sizeof(*scratch));
    if (scratch == NULL)
        return 0;
    const uint64_t least = available_under(scratch, root);
    gc_host_mem_unmap(&host, scratch, sizeof(*scratch));
    return least;
}

uint64_t gc_meminfo_available_bytes(void)
{
    return gc_meminfo_available_under("");
}
