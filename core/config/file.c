/* The configuration file is read whole into a private mapping. It is opened without blocking and
 * without being created, so a fifo or a device at its path does no harm. */
#define _GNU_SOURCE
#include "core/config/file.h"

#include "core/io/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG_BYTES_MAX (64 * 1024)

static enum gc_status read_whole(int fd, char *to, size_t room, size_t *bytes)
{
    size_t used = 0;
    while (used < room) {
        const ssize_t got = read(fd, to + used, room - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return GC_IO;
        if (got == 0)
            break;
        used += (size_t)got;
    }
    *bytes = used;
    return used == room ? GC_IO : GC_OK;
}

static enum gc_status load(const char *path, struct gc_config *config, size_t *bytes)
{
    struct statx info; /* older than glibc's fstat symbol */
    enum gc_status status = GC_IO;
    const int fd = gc_writer_raise_fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd < 0) {
        config->is_missing = errno == ENOENT || errno == ENOTDIR;
        return GC_IO;
    }
    if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &info) != 0 ||
        !S_ISREG(info.stx_mode) || info.stx_size > CONFIG_BYTES_MAX)
        goto close_file;
    config->mapped_bytes = CONFIG_BYTES_MAX + 2;
    config->text = mmap(NULL, config->mapped_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (config->text == MAP_FAILED) {
        config->text = NULL;
        goto close_file;
    }
    status = read_whole(fd, config->text, CONFIG_BYTES_MAX + 1, bytes);
    if (status != GC_OK)
        gc_config_close(config);
close_file:
    close(fd);
    return status;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static char *trim(char *begin, char *end)
{
    while (begin < end && is_blank(*begin))
        begin++;
    while (end > begin && is_blank(end[-1]))
        end--;
    *end = '\0';
    return begin;
}

static void visit_line(char *begin, char *end, unsigned number,
                       const struct gc_config_visitor *visitor)
{
    const bool has_nul = memchr(begin, '\0', (size_t)(end - begin)) != NULL;
    char *equals = memchr(begin, '=', (size_t)(end - begin));
    char *line = begin;
    while (line < end && is_blank(*line))
        line++;
    if (line == end || *line == '#')
        return;
    if (equals == NULL || has_nul || equals == line) {
        visitor->bad(visitor->argument, number);
        return;
    }
    const char *value = trim(equals + 1, end);
    visitor->entry(visitor->argument, trim(line, equals), value);
}

enum gc_status gc_config_read(const char *path, const struct gc_config_visitor *visitor,
                              struct gc_config *config)
{
    size_t bytes = 0;
    *config = (struct gc_config){.text = NULL};
    const enum gc_status status = load(path, config, &bytes);
    if (status != GC_OK)
        return status;
    char *end = config->text + bytes;
    unsigned number = 0;
    for (char *line = config->text; line < end;) {
        char *line_end = memchr(line, '\n', (size_t)(end - line));
        if (line_end == NULL)
            line_end = end;
        visit_line(line, line_end, ++number, visitor);
        line = line_end + 1;
    }
    return GC_OK;
}

void gc_config_close(struct gc_config *config)
{
    if (config->text != NULL)
        munmap(config->text, config->mapped_bytes);
    config->text = NULL;
}
