#include "core/io/process.h"
#include "core/io/writer.h"

#include "core/io/text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

static void set_unknown(char *text)
{
    memcpy(text, "?", 2);
}

static void describe_program(char *program, size_t size)
{
    static const char deleted[] = " (deleted)";
    char path[4096];
    const ssize_t got = readlink("/proc/self/exe", path, sizeof(path) - 1);
    set_unknown(program);
    if (got <= 0)
        return;
    size_t length = (size_t)got;
    path[length] = '\0';
    if (length > sizeof(deleted) && strcmp(path + length - (sizeof(deleted) - 1), deleted) == 0)
        path[length - (sizeof(deleted) - 1)] = '\0';
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    if (!gc_text_copy(program, size, name, strlen(name)))
        set_unknown(program);
}

static void describe_command(char *command, size_t size)
{
    size_t used = 0;
    const int fd = gc_writer_raise_fd(open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
    while (fd >= 0 && used < size - 1) {
        const ssize_t got = read(fd, command + used, size - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    if (fd >= 0)
        close(fd);
    while (used > 0 && command[used - 1] == '\0')
        used--;
    for (size_t i = 0; i < used; i++) {
        if (command[i] == '\0')
            command[i] = ' ';
    }
    command[used] = '\0';
    if (used == 0)
        set_unknown(command);
}

void gc_process_describe(struct gc_process *process)
{
    const int saved_errno = errno;
    struct utsname system;
    describe_program(process->program, sizeof(process->program));
    describe_command(process->command, sizeof(process->command));
    if (uname(&system) != 0 || !gc_text_copy(process->host, sizeof(process->host), system.nodename,
                                             strlen(system.nodename)))
        set_unknown(process->host);
    process->pid = getpid();
    errno = saved_errno;
}

struct path_buffer {
    char *text;
    size_t size;
    size_t used;
};

static void append(struct path_buffer *path, const char *text, size_t length, bool keep_slash)
{
    for (size_t i = 0; i < length; i++) {
        if (path->used < path->size)
            path->text[path->used] = text[i] == '/' && !keep_slash ? '_' : text[i];
        path->used++;
    }
}

static void append_pid(struct path_buffer *path, int64_t pid)
{
    char digits[24];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + pid % 10);
        pid /= 10;
    } while (pid > 0);
    append(path, digits + at, sizeof(digits) - at, true);
}

enum gc_status gc_process_expand(const struct gc_process *process, const char *pattern, char *path,
                                 size_t path_bytes)
{
    struct path_buffer buffer = {.text = path, .size = path_bytes};
    for (const char *p = pattern; *p != '\0'; p++) {
        if (*p != '%' || p[1] == '\0' || strchr("phn%", p[1]) == NULL) {
            append(&buffer, p, 1, true);
            continue;
        }
        p++;
        if (*p == 'p')
            append_pid(&buffer, process->pid);
        else if (*p == 'h')
            append(&buffer, process->host, strlen(process->host), false);
        else if (*p == 'n')
            append(&buffer, process->program, strlen(process->program), false);
        else
            append(&buffer, "%", 1, true);
    }
    append(&buffer, "", 1, true);
    return buffer.used <= path_bytes ? GC_OK : GC_FORMAT;
}

/* As the kernel writes it: readdir would take libc's allocator. */
struct entry {
    uint64_t number;
    int64_t offset;
    unsigned short bytes;
    unsigned char type;
    char name[];
};

void gc_process_visit_names(int folder, gc_process_visit *visit, void *argument)
{
    _Alignas(struct entry) char buffer[4096];
    const int saved_errno = errno;
    bool goes_on = true;
    long length;
    while (goes_on && (length = syscall(SYS_getdents64, folder, buffer, sizeof(buffer))) > 0) {
        for (long at = 0; goes_on && at < length;) {
            const struct entry *entry = (const struct entry *)(buffer + at);
            at += entry->bytes;
            goes_on = visit(argument, entry->name);
        }
    }
    errno = saved_errno;
}
