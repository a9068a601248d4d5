/* Common to tests of the simulated device with several processes. Each child starts the driver
 * itself, as one must: it is forked before this process does, and begins when it is told to. */
#ifndef SIM_CHILD_H
#define SIM_CHILD_H

#include "tests/unit/sim_memory_test.h"

#include <sys/socket.h>
#include <unistd.h>

/* A child process with a socket to it. */
struct child {
    pid_t pid;
    int socket;
};

static inline void send_all(int socket, const void *bytes, size_t count)
{
    if (write(socket, bytes, count) != (ssize_t)count)
        _exit(9);
}

static inline void hear(int socket, void *bytes, size_t count)
{
    if (recv(socket, bytes, count, MSG_WAITALL) != (ssize_t)count)
        _exit(8);
}

static inline void send_descriptor(int socket, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof fd)];
        struct cmsghdr head;
    } control = {0};
    char byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (sendmsg(socket, &message, 0) != 1)
        _exit(7);
}

static inline int receive_descriptor(int socket)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr head;
    } control = {0};
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    int fd = -1;

    if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message) != NULL)
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static inline struct child fork_child(void (*run)(int socket))
{
    struct child child;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        exit(1);
    child.pid = fork();
    if (child.pid == 0) {
        char go;

        close(pair[0]);
        hear(pair[1], &go, 1);
        if (start_device("1") != 0)
            _exit(6);
        run(pair[1]);
        _exit(0);
    }
    close(pair[1]);
    child.socket = pair[0];
    return child;
}

static inline void go(struct child child)
{
    send_all(child.socket, "g", 1);
}

#endif
