/* One call under way: injected failures, simulated host time and waits, the journal, and that
 * nothing works before cuInit.
 *
 * But for the waits of SIMCUDA_WAIT_US everything here is free of locks, so that a forked child and
 * a signal handler's thread can still get through: rules and latencies are read-only after start
 * except for their counters, and a journal line is one write() to a file opened with O_APPEND. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/early.h"
#include "tests/simcuda/driver/settings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_uint_fast64_t journal_sequence;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Sleeps the long part and spins the rest: a few microseconds must stay a few microseconds. */
static void spend_ns(uint64_t duration_ns)
{
    const uint64_t spin_ns = 100000, end = now_ns() + duration_ns;
    if (duration_ns == 0)
        return;
    if (duration_ns > 2 * spin_ns) {
        uint64_t sleep_ns = duration_ns - spin_ns;
        struct timespec pause = {(time_t)(sleep_ns / 1000000000u), (long)(sleep_ns % 1000000000u)};
        nanosleep(&pause, NULL);
    }
    while (now_ns() < end)
        ;
}

static bool rule_matches(const char *rule_entry, const char *entry)
{
    return strcmp(rule_entry, "*") == 0 || strcmp(rule_entry, entry) == 0;
}

static uint64_t latency_ns(const char *entry)
{
    const struct sim_private_settings *settings = sim_private_settings();

    for (size_t i = 0; i < settings->latency_count; i++)
        if (rule_matches(settings->latencies[i].entry, entry))
            return settings->latencies[i].duration_ns;
    return 0;
}

static bool waits_for_the_device(const char *entry)
{
#define WAITS(name) #name,
    static const char *const entries[] = {
#include "tests/simcuda/driver/waits.def"
    };
#undef WAITS

    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
        if (strcmp(entries[i], entry) == 0)
            return true;
    return false;
}

void sim_call_spend(uint64_t duration_ns)
{
    spend_ns(duration_ns);
}

void sim_call_repeats(const char *entry, uint64_t count)
{
    spend_ns(count * latency_ns(entry));
}

bool sim_call_begin(const char *entry, const struct sim_argument *arguments, CUresult *injected)
{
    const struct sim_private_settings *settings = sim_private_settings();
    bool goes_on = true;

    spend_ns(latency_ns(entry));
    for (size_t i = 0; i < settings->failure_count; i++) {
        struct sim_failure *rule = &settings->failures[i];
        if (!rule_matches(rule->entry, entry))
            continue;
        uint64_t call = atomic_fetch_add_explicit(&rule->calls, 1, memory_order_relaxed) + 1;
        if (goes_on && (call == rule->first || (rule->goes_on && call > rule->first))) {
            *injected = rule->result;
            goes_on = false;
        }
    }
    if (goes_on && sim_start() != SIM_START_DONE)
        goes_on = sim_early_goes_on(entry, sim_start(), arguments, injected);
    else if (goes_on && sim_settings()->wait_us != 0 && waits_for_the_device(entry) &&
             /* what fails anyway, as in a forked child, takes no lock */
             sim_check_init() == CUDA_SUCCESS)
        sim_wait_implicitly();
    return goes_on;
}

CUresult sim_call_end(const char *entry, CUresult result, const char *format, ...)
{
    const struct sim_private_settings *settings = sim_private_settings();
    char line[1024];
    va_list arguments;

    if (settings->journal_fd < 0)
        return result;
    uint64_t sequence = atomic_fetch_add_explicit(&journal_sequence, 1, memory_order_relaxed) + 1;
    int length = snprintf(line, sizeof line, "%llu %ld %s %d ", (unsigned long long)sequence,
                          syscall(SYS_gettid), entry, (int)result);
    va_start(arguments, format);
    int more = vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
    va_end(arguments);
    length += more < 0 ? 0 : more;
    if (length > (int)sizeof line - 2)
        length = (int)sizeof line - 2;
    while (length > 0 && line[length - 1] == ' ')
        length--;
    line[length++] = '\n';
    ssize_t written = write(settings->journal_fd, line, (size_t)length);
    (void)written; /* a full disk must not change what the program sees */
    return result;
}
