#define _GNU_SOURCE
#include "core/ledger/process.h"
#include "core/io/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STAT_BYTES 1024
/* Fields of /proc/PID/stat behind the name, the state being the first. */
#define FIELD_THREADS 17
#define FIELD_START 19

struct facts {
    char state;
    uint64_t thread_count;
    uint64_t start_ticks;
};

/* The link reads "pid:[4026531836]". */
uint64_t gc_ledger_pid_namespace(void)
{
    char text[64];
    uint64_t number = 0;
    const int kept_errno = errno;
    const ssize_t length = readlink("/proc/self/ns/pid", text, sizeof(text));
    for (ssize_t i = 0; i < length; i++)
        if (text[i] >= '0' && text[i] <= '9')
            number = number * 10 + (uint64_t)(text[i] - '0');
    errno = kept_errno;
    return number;
}

static uint64_t field(const char *text, int number)
{
    uint64_t value = 0;
    for (; number > 0 && *text != '\0'; text++)
        number -= *text == ' ';
    for (; *text >= '0' && *text <= '9'; text++)
        value = value * 10 + (uint64_t)(*text - '0');
    return value;
}

static bool read_stat(uint32_t pid, struct facts *facts)
{
    char path[32], text[STAT_BYTES];
    snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    const int fd = gc_fd_raise(open(path, O_RDONLY | O_CLOEXEC));
    if (fd < 0)
        return false;
    const ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0)
        return false;
    text[length] = '\0';
    const char *behind_name = strrchr(text, ')');
    if (behind_name == NULL || behind_name[1] != ' ')
        return false;
    facts->state = behind_name[2];
    facts->thread_count = field(behind_name + 2, FIELD_THREADS);
    facts->start_ticks = field(behind_name + 2, FIELD_START);
    return true;
}

uint64_t gc_ledger_start_ticks(uint32_t pid)
{
    struct facts facts;
    const int kept_errno = errno;
    const bool is_known = read_stat(pid, &facts);
    errno = kept_errno;
    return is_known ? facts.start_ticks : 0;
}

/* The first thread may have ended while others still give the device back. */
bool gc_ledger_process_exists(uint32_t pid, uint64_t start_ticks)
{
    struct facts facts;
    const int kept_errno = errno;
    const bool is_known = read_stat(pid, &facts);
    errno = kept_errno;
    if (!is_known || facts.start_ticks != start_ticks)
        return false;
    return (facts.state != 'Z' && facts.state != 'X') || facts.thread_count > 1;
}

bool gc_ledger_process_is_stopped(uint32_t pid, uint64_t start_ticks)
{
    struct facts facts;
    const int kept_errno = errno;
    const bool is_known = read_stat(pid, &facts);
    errno = kept_errno;
    return is_known && facts.start_ticks == start_ticks &&
           (facts.state == 'T' || facts.state == 't');
}
