#include "core/io/writer.h"

#include "core/io/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 1000

int gc_writer_raise_fd(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    const int raised = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int error = errno;
    close(fd);
    if (raised >= 0)
        (void)lseek(raised, 0, SEEK_SET);
    errno = error;
    return raised;
}

/* A write to a pipe without a reader, or beyond the process's file size limit, must not end the
 * program: its signal is blocked for the thread and discarded before it is unblocked. */
struct signal_guard {
    sigset_t before;
    sigset_t pending_before;
    bool active;
};

static void guard_begin(struct signal_guard *guard)
{
    sigset_t raised;
    sigemptyset(&raised);
    sigaddset(&raised, SIGPIPE);
    sigaddset(&raised, SIGXFSZ);
    sigemptyset(&guard->pending_before);
    sigpending(&guard->pending_before);
    /* On Linux sigprocmask is per thread; pthread_sigmask would require a newer glibc. */
    guard->active = sigprocmask(SIG_BLOCK, &raised, &guard->before) == 0;
}

static void guard_end(const struct signal_guard *guard, int error)
{
    const struct timespec at_once = {.tv_sec = 0};
    const int raised = error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
    sigset_t one;
    if (!guard->active)
        return;
    if (raised != 0 && sigismember(&guard->pending_before, raised) == 0) {
        sigemptyset(&one);
        sigaddset(&one, raised);
        while (sigtimedwait(&one, NULL, &at_once) < 0 && errno == EINTR)
            ;
    }
    sigprocmask(SIG_SETMASK, &guard->before, NULL);
}

static int write_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t done = write(fd, bytes, count);
        if (done > 0) {
            bytes += done;
            count -= (size_t)done;
        } else if (done == 0) {
            return EIO;
        } else if (errno == EAGAIN) {
            struct pollfd ready = {.fd = fd, .events = POLLOUT};
            if (poll(&ready, 1, WAIT_MS) <= 0)
                return EAGAIN;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

enum gc_status gc_writer_write_all(int fd, const void *bytes, size_t count)
{
    struct signal_guard guard;
    guard_begin(&guard);
    const int error = write_all(fd, bytes, count);
    guard_end(&guard, error);
    if (error == 0)
        return GC_OK;
    errno = error;
    return GC_IO;
}

void gc_writer_init(struct gc_writer *out, int fd)
{
    out->fd = fd;
    out->error = 0;
    out->used = 0;
    out->column = 0;
    out->is_colored = false;
    out->is_styled = false;
}

bool gc_writer_wants_color(int fd)
{
    const char *refused = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");
    const int saved_errno = errno;
    const bool is_terminal = isatty(fd) == 1;
    errno = saved_errno;
    return is_terminal && (refused == NULL || refused[0] == '\0') && terminal != NULL &&
           terminal[0] != '\0' && strcmp(terminal, "dumb") != 0;
}

void gc_writer_set_style(struct gc_writer *out, enum gc_writer_style style)
{
    static const char *const codes[] = {[GC_STYLE_PLAIN] = "\033[0m",
                                        [GC_STYLE_STRONG] = "\033[1m",
                                        [GC_STYLE_GOOD] = "\033[32m",
                                        [GC_STYLE_CAUTION] = "\033[33m",
                                        [GC_STYLE_ALERT] = "\033[1;31m"};
    const size_t column = out->column;
    if (!out->is_colored || (style == GC_STYLE_PLAIN && !out->is_styled))
        return;
    gc_writer_text(out, codes[style]);
    out->column = column;
    out->is_styled = style != GC_STYLE_PLAIN;
}

enum gc_status gc_writer_flush(struct gc_writer *out)
{
    if (out->error == 0 && out->used > 0 &&
        gc_writer_write_all(out->fd, out->buffer, out->used) != GC_OK)
        out->error = errno;
    out->used = 0;
    if (out->error == 0)
        return GC_OK;
    errno = out->error;
    return GC_IO;
}

void gc_writer_char(struct gc_writer *out, char c)
{
    if (out->used == sizeof(out->buffer))
        (void)!gc_writer_flush(out);
    out->buffer[out->used++] = c;
    out->column = c == '\n' ? 0 : out->column + 1;
}

void gc_writer_bytes(struct gc_writer *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        gc_writer_char(out, text[i]);
}

void gc_writer_text(struct gc_writer *out, const char *text)
{
    gc_writer_bytes(out, text, strlen(text));
}

/* Writes the digits of `value`, at least `least` of them, at the end of `to`; returns their
 * beginning. */
static char *digits_of(uint64_t value, unsigned base, unsigned least, char *to, size_t size)
{
    char *p = to + size - 1;
    *p = '\0';
    while (value != 0 || least > 0) {
        *--p = "0123456789abcdef"[value % base];
        value /= base;
        if (least > 0)
            least--;
    }
    return p;
}

void gc_writer_uint(struct gc_writer *out, uint64_t value)
{
    char digits[24];
    gc_writer_text(out, digits_of(value, 10, 1, digits, sizeof(digits)));
}

void gc_writer_int(struct gc_writer *out, int64_t value)
{
    if (value < 0)
        gc_writer_char(out, '-');
    gc_writer_uint(out, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void gc_writer_hex(struct gc_writer *out, uint64_t value)
{
    char digits[24];
    gc_writer_text(out, "0x");
    gc_writer_text(out, digits_of(value, 16, 1, digits, sizeof(digits)));
}

void gc_writer_fixed(struct gc_writer *out, uint64_t value, unsigned digits)
{
    char text[24];
    uint64_t scale = 1;
    for (unsigned i = 0; i < digits; i++)
        scale *= 10;
    gc_writer_uint(out, value / scale);
    if (digits == 0)
        return;
    gc_writer_char(out, '.');
    gc_writer_text(out, digits_of(value % scale, 10, digits, text, sizeof(text)));
}

void gc_writer_pad(struct gc_writer *out, size_t column)
{
    if (out->column > 0 && out->column >= column)
        gc_writer_char(out, ' ');
    while (out->column < column)
        gc_writer_char(out, ' ');
}

void gc_writer_right(struct gc_writer *out, size_t column, const char *text)
{
    const size_t length = strlen(text);
    gc_writer_pad(out, column > length ? column - length : 0);
    gc_writer_text(out, text);
}

void gc_writer_right_uint(struct gc_writer *out, size_t column, uint64_t value)
{
    char digits[24] = "";
    gc_writer_right(out, column, digits_of(value, 10, 1, digits, sizeof(digits)));
}

void gc_writer_right_size(struct gc_writer *out, size_t column, uint64_t bytes)
{
    char text[GC_TEXT_SIZE_BYTES];
    gc_writer_right(out, column, gc_text_size(bytes, text));
}

/* The text of a number with its sign. */
static const char *number_text(uint64_t value, bool is_negative, char *to, size_t size)
{
    char *digits = digits_of(value, 10, 1, to + 1, size - 1);
    if (is_negative)
        *--digits = '-';
    return digits;
}

/* Writes one directive, from after its '%'; returns the directive's end. */
static const char *print_one(struct gc_writer *out, const char *format, va_list *arguments)
{
    char digits[24];
    const bool is_long = *format == 'l';
    format += is_long;
    const char *text = "%";
    if (*format == 's') {
        text = va_arg(*arguments, const char *);
    } else if (*format == 'u') {
        const uint64_t value =
            is_long ? va_arg(*arguments, unsigned long) : va_arg(*arguments, unsigned);
        text = number_text(value, false, digits, sizeof(digits));
    } else if (*format == 'd') {
        const int64_t value = is_long ? va_arg(*arguments, long) : va_arg(*arguments, int);
        const uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
        text = number_text(size, value < 0, digits, sizeof(digits));
    }
    gc_writer_text(out, text);
    return format + 1;
}

void gc_writer_print(struct gc_writer *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    while (*format != '\0') {
        const size_t plain = strcspn(format, "%");
        gc_writer_bytes(out, format, plain);
        format += plain;
        if (*format == '%')
            format = print_one(out, format + 1, &arguments);
    }
    va_end(arguments);
}
