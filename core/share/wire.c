#define _GNU_SOURCE
#include "core/share/wire.h"

#include "core/base/clock.h"
#include "core/io/process.h"
#include "core/io/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NAME_FORMAT "ipc-%016llx"
#define NAME_BYTES 24
#define BACKLOG 64
#define PAUSE_NS 1000000
/* A hidden socket gets its name at once, unless its process ended before. */
#define HIDDEN_S 60

uint64_t gc_wire_check_of(const struct gc_wire_handle *handle)
{
    const uint64_t words[] = {handle->magic, handle->name,  handle->secret, handle->address,
                              handle->id,    handle->bytes, handle->pid};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

uint64_t gc_wire_random(void)
{
    uint64_t number = 0;
    const int saved_errno = errno;
    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != (ssize_t)sizeof(number))
        number = 0;
    errno = saved_errno;
    return number;
}

/* ---- descriptors ---- */

/* statx is an old libc symbol; fstat is a newer one. */
static uint64_t number_of(int fd)
{
    struct statx facts;
    return statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_TYPE, &facts) == 0 &&
                   S_ISSOCK(facts.stx_mode)
               ? facts.stx_ino
               : 0;
}

static bool take(struct gc_wire_end *end, int fd, uint32_t wait_ms)
{
    fd = gc_writer_raise_fd(fd);
    *end = (struct gc_wire_end){fd, wait_ms, fd < 0 ? 0 : number_of(fd)};
    return fd >= 0;
}

bool gc_wire_is_intact(const struct gc_wire_end *end)
{
    const int saved_errno = errno;
    const bool is_intact = end->fd >= 0 && end->number != 0 && number_of(end->fd) == end->number;
    errno = saved_errno;
    return is_intact;
}

void gc_wire_close(struct gc_wire_end *end)
{
    const int saved_errno = errno;
    if (gc_wire_is_intact(end))
        close(end->fd);
    end->fd = -1;
    errno = saved_errno;
}

/* ---- names ---- */

int gc_wire_open_folder(const char *path)
{
    char folder[4096];
    struct statx facts;
    const char *end = strrchr(path, '/');
    const int saved_errno = errno;
    if (end == NULL || (size_t)(end - path) >= sizeof(folder))
        return -1;
    memcpy(folder, path, (size_t)(end - path));
    folder[end - path] = '\0';
    int fd = gc_writer_raise_fd(open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (fd >= 0 && (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &facts) != 0 ||
                    facts.stx_uid != geteuid() || (facts.stx_mode & 077) != 0)) {
        close(fd);
        fd = -1;
    }
    errno = saved_errno;
    return fd;
}

static void set_name(char text[NAME_BYTES], uint64_t name)
{
    snprintf(text, NAME_BYTES, NAME_FORMAT, (unsigned long long)name);
}

/* A path that fits into a socket's address however long the folder's is. */
static struct sockaddr_un address_of(int folder, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", folder, name);
    return address;
}

void gc_wire_unlink(int folder, uint64_t name)
{
    char text[NAME_BYTES];
    const int saved_errno = errno;
    set_name(text, name);
    unlinkat(folder, text, 0);
    errno = saved_errno;
}

static int new_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static bool is_same_user(int fd, uint32_t *pid)
{
    struct ucred other;
    socklen_t size = sizeof(other);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) != 0 || other.uid != geteuid())
        return false;
    *pid = (uint32_t)other.pid;
    return true;
}

/* A socket gets its name once it listens: one that refuses is of a process that has ended. */
bool gc_wire_listen(int folder, uint64_t name, struct gc_wire_end *end)
{
    char text[NAME_BYTES], hidden[NAME_BYTES + 1];
    const int saved_errno = errno;
    set_name(text, name);
    snprintf(hidden, sizeof(hidden), ".%s", text);
    const struct sockaddr_un address = address_of(folder, hidden);
    bool is_made = take(end, new_socket(), 0);
    if (is_made && (bind(end->fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
                    fchmodat(folder, hidden, 0600, 0) != 0 || listen(end->fd, BACKLOG) != 0 ||
                    renameat(folder, hidden, folder, text) != 0)) {
        unlinkat(folder, hidden, 0);
        gc_wire_close(end);
        is_made = false;
    }
    errno = saved_errno;
    return is_made;
}

static void pause_briefly(void)
{
    const struct timespec pause = {0, PAUSE_NS};
    nanosleep(&pause, NULL);
}

/* Connects as far as the kernel; the other process need not run for that. */
static int connect_name(int folder, const char *name, uint64_t limit_ns)
{
    const struct sockaddr_un address = address_of(folder, name);
    const int fd = gc_writer_raise_fd(new_socket());
    int error = 0;
    if (fd < 0)
        return -1;
    while (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        error = errno;
        if (error != EINTR && (error != EAGAIN || gc_clock_ns() >= limit_ns))
            break;
        error = 0;
        pause_briefly(); /* the backlog is full */
    }
    if (error == 0)
        return fd;
    close(fd);
    if (error == ECONNREFUSED)
        unlinkat(folder, name, 0);
    return -1;
}

bool gc_wire_connect(int folder, uint64_t name, struct gc_wire_end *end)
{
    char text[NAME_BYTES];
    uint32_t pid;
    const int saved_errno = errno;
    set_name(text, name);
    *end = (struct gc_wire_end){.fd = -1};
    const int fd = connect_name(folder, text, gc_clock_ns() + GC_WIRE_WAIT_MS * UINT64_C(1000000));
    bool is_made = fd >= 0 && take(end, fd, GC_WIRE_WAIT_MS);
    if (is_made && !is_same_user(end->fd, &pid)) {
        gc_wire_close(end);
        is_made = false;
    }
    errno = saved_errno;
    return is_made;
}

bool gc_wire_accept(const struct gc_wire_end *listener, struct gc_wire_end *end, uint32_t *pid)
{
    const int saved_errno = errno;
    bool is_made = take(end, accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), 0);
    if (!is_made && errno != EAGAIN)
        pause_briefly(); /* without a descriptor the connection stays, and is seen again at once */
    if (is_made && !is_same_user(end->fd, pid)) {
        gc_wire_close(end);
        is_made = false;
    }
    errno = saved_errno;
    return is_made;
}

static bool is_name(const char *name)
{
    char text[NAME_BYTES];
    char *end;
    if (strncmp(name, "ipc-", 4) != 0)
        return false;
    set_name(text, strtoull(name + 4, &end, 16));
    return *end == '\0' && strcmp(text, name) == 0;
}

static bool is_left_hidden(int folder, const char *name)
{
    struct statx facts;
    return name[0] == '.' && is_name(name + 1) &&
           statx(folder, name, AT_SYMLINK_NOFOLLOW, STATX_MTIME, &facts) == 0 &&
           time(NULL) - facts.stx_mtime.tv_sec >= HIDDEN_S;
}

static bool sweep_one(void *argument, const char *name)
{
    const int folder = *(const int *)argument;
    const int found =
        is_name(name) || is_left_hidden(folder, name) ? connect_name(folder, name, 0) : -1;
    if (found >= 0)
        close(found);
    return true;
}

void gc_wire_sweep(int folder)
{
    const int saved_errno = errno;
    /* A descriptor of its own has a position of its own. */
    const int fd = gc_writer_raise_fd(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd >= 0) {
        gc_process_visit_names(fd, sweep_one, &folder);
        close(fd);
    }
    errno = saved_errno;
}

/* ---- messages ---- */

static bool wait_for(const struct gc_wire_end *end, short events)
{
    const uint64_t limit_ns = gc_clock_ns() + end->wait_ms * UINT64_C(1000000);
    struct pollfd wanted = {.fd = end->fd, .events = events};
    uint64_t now_ns;
    while ((now_ns = gc_clock_ns()) < limit_ns) {
        const int count = poll(&wanted, 1, (int)((limit_ns - now_ns) / 1000000) + 1);
        if (count > 0)
            return true;
        if (count < 0 && errno != EINTR)
            return false;
    }
    return false;
}

/* Room for the descriptors of one message, aligned. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(GC_WIRE_FDS * sizeof(int))];
};

bool gc_wire_send(const struct gc_wire_end *end, const void *message, size_t bytes, const int *fds,
                  uint32_t fd_count)
{
    const int saved_errno = errno;
    union control control;
    struct iovec part = {(void *)(uintptr_t)message, bytes};
    struct msghdr envelope = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t sent = -1;
    memset(&control, 0, sizeof(control));
    if (fd_count > 0) {
        envelope.msg_control = control.bytes;
        envelope.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&envelope);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
    }
    if (gc_wire_is_intact(end)) {
        do
            sent = sendmsg(end->fd, &envelope, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (sent < 0 && (errno == EINTR || (errno == EAGAIN && wait_for(end, POLLOUT))));
    }
    errno = saved_errno;
    return sent == (ssize_t)bytes;
}

static uint32_t take_fds(struct msghdr *envelope, int fds[GC_WIRE_FDS])
{
    uint32_t count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(envelope); header != NULL;
         header = CMSG_NXTHDR(envelope, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t more = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds + count, CMSG_DATA(header), more * sizeof(int));
        count += (uint32_t)more;
    }
    for (uint32_t i = 0; i < count; i++)
        fds[i] = gc_writer_raise_fd(fds[i]);
    return count;
}

bool gc_wire_receive(const struct gc_wire_end *end, void *message, size_t bytes, int *fds,
                     uint32_t *fd_count)
{
    const int saved_errno = errno;
    union control control;
    int taken[GC_WIRE_FDS];
    struct iovec part = {message, bytes};
    struct msghdr envelope = {.msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof(control.bytes)};
    ssize_t received = -1;
    if (gc_wire_is_intact(end)) {
        do
            received = recvmsg(end->fd, &envelope, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        while (received < 0 && (errno == EINTR || (errno == EAGAIN && wait_for(end, POLLIN))));
    }
    uint32_t count = received < 0 ? 0 : take_fds(&envelope, taken);
    bool is_whole = received == (ssize_t)bytes &&
                    (envelope.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
                    (fds != NULL || count == 0);
    for (uint32_t i = 0; i < count; i++)
        is_whole = is_whole && taken[i] >= 0;
    for (uint32_t i = 0; i < count; i++) {
        if (is_whole)
            fds[i] = taken[i];
        else if (taken[i] >= 0)
            close(taken[i]);
    }
    if (fd_count != NULL)
        *fd_count = is_whole ? count : 0;
    errno = saved_errno;
    return is_whole;
}
