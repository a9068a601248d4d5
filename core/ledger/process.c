#define _GNU_SOURCE
#include "core/ledger/process.h"

#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/io/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DYING_NS_MAX (10 * GC_NS_PER_S)
#define GRACE_NS (100 * GC_NS_PER_MS)
#define STAT_BYTES 1024
/* Fields of /proc/PID/stat, counted from the state, which is 0. */
#define FIELD_THREADS 17
#define FIELD_START 19
#define FIELD_STACK 25

struct facts {
    char state;
    uint64_t thread_count;
    uint64_t start_ticks;
    uint64_t stack_address;
};

/* The link reads "pid:[4026531836]". */
uint64_t gc_ledger_pid_namespace(void)
{
    char text[64];
    uint64_t number = 0;
    const int saved_errno = errno;
    const ssize_t length = readlink("/proc/self/ns/pid", text, sizeof(text));
    for (ssize_t i = 0; i < length; i++)
        if (text[i] >= '0' && text[i] <= '9')
            number = number * 10 + (uint64_t)(text[i] - '0');
    errno = saved_errno;
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
    const int fd = gc_writer_raise_fd(open(path, O_RDONLY | O_CLOEXEC));
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
    facts->stack_address = field(behind_name + 2, FIELD_STACK);
    return true;
}

/* As read_stat; errno is kept. */
static bool try_read_stat(uint32_t pid, struct facts *facts)
{
    const int saved_errno = errno;
    const bool is_known = read_stat(pid, facts);
    errno = saved_errno;
    return is_known;
}

uint64_t gc_ledger_start_ticks(uint32_t pid)
{
    struct facts facts;
    return try_read_stat(pid, &facts) ? facts.start_ticks : 0;
}

uint64_t gc_ledger_stack_address(uint32_t pid)
{
    struct facts facts;
    return try_read_stat(pid, &facts) ? facts.stack_address : 0;
}

/* The first thread may have ended while others still release the device. */
bool gc_ledger_process_exists(uint32_t pid, uint64_t start_ticks)
{
    struct facts facts;
    const int saved_errno = errno;
    errno = 0;
    const bool is_known = read_stat(pid, &facts);
    const bool is_absent = errno == ENOENT || errno == ESRCH;
    errno = saved_errno;
    if (!is_known)
        return !is_absent; /* no descriptor was left, for one */
    if (facts.start_ticks != start_ticks)
        return false;
    return (facts.state != 'Z' && facts.state != 'X') || facts.thread_count > 1;
}

bool gc_ledger_process_is_stopped(uint32_t pid, uint64_t start_ticks)
{
    struct facts facts;
    return try_read_stat(pid, &facts) && facts.start_ticks == start_ticks &&
           (facts.state == 'T' || facts.state == 't');
}

/* ---- the owner of a slot ---- */

/* The time since a process first found the slot's owner dead. The low bits of death_ns are the
 * owner's generation: an earlier owner's value is ignored. */
static uint64_t dead_for_ns(struct gc_ledger_slot *slot)
{
    const uint64_t generation =
        atomic_load_explicit(&slot->generation, memory_order_relaxed) & GC_LEDGER_GENERATIONS;
    const uint64_t now = (gc_clock_ns() & ~(uint64_t)GC_LEDGER_GENERATIONS) | generation;
    uint64_t first = atomic_load_explicit(&slot->death_ns, memory_order_relaxed);
    if (first == 0 || (first & GC_LEDGER_GENERATIONS) != generation) {
        (void)atomic_compare_exchange_strong_explicit(&slot->death_ns, &first, now,
                                                      memory_order_relaxed, memory_order_relaxed);
        return 0;
    }
    return now < first ? UINT64_MAX : now - first;
}

/* Whether the owner was this process before its exec: the driver freed that memory together with
 * the old program. */
static bool is_former_self(const struct gc_ledger_slot *slot, uint32_t pid)
{
    return pid == (uint32_t)getpid() &&
           atomic_load_explicit(&slot->start_ticks, memory_order_relaxed) ==
               gc_ledger_start_ticks(pid);
}

bool gc_ledger_process_is_dying(struct gc_ledger_slot *slot)
{
    const uint64_t dead_ns = dead_for_ns(slot);
    const uint32_t pid = atomic_load_explicit(&slot->pid, memory_order_relaxed);
    if (dead_ns > DYING_NS_MAX || pid == 0)
        return false;
    if (atomic_load_explicit(&slot->pid_namespace, memory_order_relaxed) !=
        gc_ledger_pid_namespace())
        return dead_ns < GRACE_NS;
    return !is_former_self(slot, pid) &&
           gc_ledger_process_exists(pid,
                                    atomic_load_explicit(&slot->start_ticks, memory_order_relaxed));
}
