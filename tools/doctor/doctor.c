/* The list of findings, and examinations in child processes. */
#define _GNU_SOURCE
#include "tools/doctor/doctor.h"

#include "core/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_BYTES 1024

void doctor_fini(struct doctor *doctor)
{
    for (size_t i = 0; i < doctor->count; i++) {
        free(doctor->findings[i].text);
        free(doctor->findings[i].advice);
    }
    free(doctor->findings);
    *doctor = (struct doctor){0};
}

/* ---- findings ---- */

static char *copy_shown(const char *text)
{
    char *copy = strdup(text);
    for (char *p = copy; p != NULL && *p != '\0'; p++) {
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
    }
    return copy;
}

static void add(struct doctor *doctor, enum doctor_level level, const char *topic, const char *text)
{
    struct doctor_finding *more =
        realloc(doctor->findings, (doctor->count + 1) * sizeof(*doctor->findings));
    if (more == NULL) {
        doctor->no_memory = true;
        return;
    }
    doctor->findings = more;
    struct doctor_finding *finding = &more[doctor->count];
    *finding = (struct doctor_finding){.level = level, .text = copy_shown(text)};
    snprintf(finding->topic, sizeof(finding->topic), "%s", topic);
    if (finding->text == NULL)
        doctor->no_memory = true;
    else
        doctor->count++;
}

void doctor_report(struct doctor *doctor, enum doctor_level level, const char *topic,
                   const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    add(doctor, level, topic, text);
}

void doctor_advise(struct doctor *doctor, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list arguments;
    if (doctor->count == 0)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    struct doctor_finding *finding = &doctor->findings[doctor->count - 1];
    free(finding->advice);
    finding->advice = copy_shown(text);
}

size_t doctor_count(const struct doctor *doctor, enum doctor_level level)
{
    size_t count = 0;
    for (size_t i = 0; i < doctor->count; i++)
        count += doctor->findings[i].level == level;
    return count;
}

/* ---- a process of its own ---- */

/* Over the pipe a finding is "LEVEL\tTOPIC\tTEXT\tADVICE\n"; texts have no such bytes. */
static void send_all(const struct doctor *doctor, int fd)
{
    for (size_t i = 0; i < doctor->count; i++) {
        const struct doctor_finding *finding = &doctor->findings[i];
        dprintf(fd, "%d\t%s\t%s\t%s\n", (int)finding->level, finding->topic, finding->text,
                finding->advice != NULL ? finding->advice : "");
    }
}

static void add_line(struct doctor *doctor, char *line)
{
    char *fields[4];
    for (size_t i = 0; i < 4; i++) {
        fields[i] = strsep(&line, "\t");
        if (fields[i] == NULL)
            return;
    }
    add(doctor, (enum doctor_level)(fields[0][0] - '0'), fields[1], fields[2]);
    if (fields[3][0] != '\0')
        doctor_advise(doctor, "%s", fields[3]);
}

/* Reads until the other end is closed; false if that takes too long. Bytes beyond `size` are
 * read and dropped. */
static bool drain(int fd, char *buffer, size_t size, unsigned seconds)
{
    const int64_t until = gc_clock_ms() + seconds * INT64_C(1000);
    size_t used = 0;
    bool ended = false;
    while (!ended) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        char rest[512];
        const int64_t left = until - gc_clock_ms();
        if (left <= 0)
            break;
        if (poll(&wait, 1, (int)left) <= 0)
            continue;
        const bool is_full = used + 1 >= size;
        const ssize_t got =
            is_full ? read(fd, rest, sizeof(rest)) : read(fd, buffer + used, size - 1 - used);
        if (got > 0 && !is_full)
            used += (size_t)got;
        ended = got == 0 || (got < 0 && errno != EINTR);
    }
    buffer[used] = '\0';
    return ended;
}

static int wait_for(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return -1;
    }
    return status;
}

/* Redirects the standard streams to /dev/null, or output to `fd` if `captured`. */
static void redirect(int fd, bool captured)
{
    const int nowhere = open("/dev/null", O_RDWR);
    if (nowhere >= 0)
        dup2(nowhere, STDIN_FILENO);
    dup2(captured ? fd : nowhere, STDOUT_FILENO);
    dup2(captured ? fd : nowhere, STDERR_FILENO);
}

void doctor_apart(struct doctor *doctor, const char *topic, unsigned seconds,
                  void (*examine)(struct doctor *doctor))
{
    static char buffer[256 << 10];
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        doctor_report(doctor, DOCTOR_FAILURE, topic, "could not be examined: %s", strerror(errno));
        return;
    }
    const pid_t child = fork();
    if (child == 0) {
        struct doctor own = {0};
        redirect(ends[1], false);
        examine(&own);
        send_all(&own, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    const bool ended = child > 0 && drain(ends[0], buffer, sizeof(buffer), seconds);
    close(ends[0]);
    if (child > 0 && !ended)
        kill(child, SIGKILL);
    const int status = child > 0 ? wait_for(child) : -1;
    char *rest = buffer;
    for (char *line; ended && (line = strsep(&rest, "\n")) != NULL;)
        add_line(doctor, line);
    if (!ended)
        doctor_report(doctor, DOCTOR_FAILURE, topic, "did not answer within %u s", seconds);
    else if (status == -1 || WIFSIGNALED(status))
        doctor_report(doctor, DOCTOR_FAILURE, topic, "ended with %s while it was examined",
                      status == -1 ? "an error" : strsignal(WTERMSIG(status)));
    if (!ended || status == -1 || WIFSIGNALED(status))
        doctor_advise(doctor, "any CUDA program will fail like this: see nvidia-smi and dmesg");
}

int doctor_run(const char *const *arguments, const char *name, const char *value, char *output,
               size_t size)
{
    int ends[2];
    output[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    const pid_t child = fork();
    if (child == 0) {
        redirect(ends[1], true);
        unsetenv("LD_PRELOAD");
        setenv(name, value, 1);
        execv(arguments[0], (char *const *)arguments);
        _exit(127);
    }
    close(ends[1]);
    const bool ended = child > 0 && drain(ends[0], output, size, 10);
    close(ends[0]);
    if (child > 0 && !ended)
        kill(child, SIGKILL);
    const int status = child > 0 ? wait_for(child) : -1;
    return ended && status != -1 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
