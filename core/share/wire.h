/* The messages by which a process opens blocks of another one: requests and replies over a local
 * socket that keeps message boundaries (SOCK_SEQPACKET) in the ledger's folder. A reply carries a
 * descriptor of each extent.
 *
 * Only processes of one user reach the folder, and each side asks the kernel for the other's user
 * (SO_PEERCRED). All content is foreign: the receiver checks it. A socket whose process has ended
 * is removed by the next process that finds it so. No call waits longer than its bound; all keep
 * errno. */
#ifndef GC_WIRE_H
#define GC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GC_WIRE_MAGIC UINT64_C(0x315059436b706367)
/* Descriptors of one reply: few, since a process may have few. */
#define GC_WIRE_FDS 16
#define GC_WIRE_UUID_BYTES 48
/* How long a process waits for the answer of another one. */
#define GC_WIRE_WAIT_MS 10000U

/* The 64 bytes that stand for a block. */
struct gc_wire_handle {
    uint64_t magic;
    uint64_t name;   /* of the exporter's socket */
    uint64_t secret; /* known to processes that were given a handle */
    uint64_t address;
    uint64_t id; /* of the block: no other block of the process has it */
    uint64_t bytes;
    uint64_t pid; /* in the exporter's namespace; for messages */
    uint64_t check;
};
_Static_assert(sizeof(struct gc_wire_handle) == 64, "CU_IPC_HANDLE_SIZE");

enum gc_wire_kind {
    GC_WIRE_OPEN,  /* the block's first extents; the block is open from now on */
    GC_WIRE_MORE,  /* the extents from `first` on */
    GC_WIRE_CLOSE, /* no reply */
};

struct gc_wire_request {
    uint64_t magic;
    uint64_t secret;
    uint64_t address;
    uint64_t id;
    uint64_t kind;  /* enum gc_wire_kind */
    uint64_t first; /* extent */
};

struct gc_wire_reply {
    uint64_t magic;
    uint32_t status;      /* enum gc_status; below: 0 unless it is GC_OK */
    uint32_t count;       /* extents of this reply, one descriptor each */
    uint32_t total_count; /* extents of the block */
    uint32_t unused;
    uint64_t total_bytes; /* of all extents */
    uint64_t offset;      /* of the block in its first extent */
    uint64_t bytes;       /* of the block */
    uint64_t extent_bytes[GC_WIRE_FDS];
    char uuid[GC_WIRE_UUID_BYTES]; /* of the device */
};

/* A descriptor of this library's own. A program may close it, and its number be reused. */
struct gc_wire_end {
    int fd;           /* -1: none */
    uint32_t wait_ms; /* how long a message may take to be sent or received */
    uint64_t number;
};

uint64_t gc_wire_check_of(const struct gc_wire_handle *handle);
/* A random number, never 0; 0: there is none. */
uint64_t gc_wire_random(void);

/* The folder of the ledger's file at `path`; -1: it cannot be opened, or is another user's. */
int gc_wire_open_folder(const char *path);
/* Removes the sockets of processes that have ended. */
void gc_wire_sweep(int folder);
/* A socket of that name that listens. False: it cannot be made. */
bool gc_wire_listen(int folder, uint64_t name, struct gc_wire_end *end);
void gc_wire_unlink(int folder, uint64_t name);
/* Accepts a connection of a process of the same user, which is not waited for: it asks one question
 * at a time, so there is room for the answer. False: there is none. */
bool gc_wire_accept(const struct gc_wire_end *listener, struct gc_wire_end *end, uint32_t *pid);
/* False: no process of the same user listens there. */
bool gc_wire_connect(int folder, uint64_t name, struct gc_wire_end *end);

/* Whether the descriptor is still the library's. */
bool gc_wire_is_intact(const struct gc_wire_end *end);
/* Closes it if it is intact. */
void gc_wire_close(struct gc_wire_end *end);

/* Sends a message with descriptors, which stay the caller's. */
bool gc_wire_send(const struct gc_wire_end *end, const void *message, size_t bytes, const int *fds,
                  uint32_t fd_count);
/* Receives a message of exactly `bytes` with at most GC_WIRE_FDS descriptors. False: the other side
 * has ended, is silent, or sent something else; no descriptor is left. */
bool gc_wire_receive(const struct gc_wire_end *end, void *message, size_t bytes, int *fds,
                     uint32_t *fd_count);

#endif
