/* The ledger: a file shared by all processes of one user that use devices under the library. The
 * library in every process reads and writes it, as do `gpucache top`, `limit`, `trim`, `pause` and
 * `resume`. Its layout is in file.h.
 *
 * No process waits for another: tables have no lock, and a slot's lock is only tried. All content
 * is foreign: texts may hold any byte (print them escaped), numbers any value. All functions but
 * open and close are thread-safe. */
#ifndef GC_LEDGER_H
#define GC_LEDGER_H

#include "core/base/status.h"
#include "core/ledger/file.h"

#include <stdbool.h>
#include <stddef.h>

#define GC_LEDGER_PATH_BYTES 4200
#define GC_LEDGER_REASON_BYTES 512
#define GC_LEDGER_NONE UINT32_MAX /* no slot, no row */

struct gc_ledger {
    struct gc_ledger_file *file;
    int fd;
    /* The slot that this process holds; GC_LEDGER_NONE: none, the ledger is open only to read it
     * and to send requests. */
    uint32_t own;
    uint64_t device_number; /* device number of the file behind fd, to detect another file */
    uint64_t file_number;
    char path[GC_LEDGER_PATH_BYTES];
};

/* The folder of this user's ledger: `given`, or, where that is "", NODE/users/UID if NODE/users is
 * a sticky folder that this user can write, else /dev/shm/gpucache-UID. */
const char *gc_ledger_folder(const char *given, const char *node,
                             char folder[GC_LEDGER_PATH_BYTES]);
/* Opens the ledger in `folder`. `create`: creates a missing folder and file; otherwise returns
 * GC_NOT_OURS if one is missing: there is no ledger. GC_IO, GC_FORMAT: `reason` has the fault, its
 * place and the accepted state; nothing is changed. */
enum gc_status gc_ledger_open(const char *folder, bool create, struct gc_ledger *ledger,
                              char reason[GC_LEDGER_REASON_BYTES]) GC_CHECKED;
/* As that, for root: the ledger of the user `owner`. The user may be hostile and cut the file short
 * at any time; an access then raises SIGBUS. */
enum gc_status gc_ledger_open_of(const char *folder, uint32_t owner, struct gc_ledger *ledger,
                                 char reason[GC_LEDGER_REASON_BYTES]) GC_CHECKED;
/* Whether the descriptor is still the opened file: programs close descriptors that they do not
 * know, and numbers are reused. Without the descriptor no process can be found dead. */
bool gc_ledger_is_intact(const struct gc_ledger *ledger);
/* Whether the file's name is gone or belongs to another file: processes that start later use
 * another file. */
bool gc_ledger_is_removed(const struct gc_ledger *ledger);
/* Opens the file again. The own slot stays held meanwhile: the mapping keeps the slot's lock. */
bool gc_ledger_repair(struct gc_ledger *ledger);
/* Unmaps and closes the file, which frees the own slot. */
void gc_ledger_close(struct gc_ledger *ledger);

/* ---- reading ---- */

struct gc_ledger_device {
    uint64_t total_bytes;
    char uuid[GC_LEDGER_UUID_BYTES];
    char name[GC_LEDGER_NAME_BYTES];
};

struct gc_ledger_process {
    uint32_t slot;
    uint32_t generation; /* identifies the process together with the slot */
    int pid;
    uint32_t mode; /* enum gc_mode */
    bool is_paused;
    bool has_helper;      /* answers at once, not only at its next allocation or submission */
    uint64_t device_mask; /* bit i: uses device row i */
    uint64_t start_unix;
    uint64_t figures_ns; /* CLOCK_MONOTONIC of the last write of its figures; 0: never */
    char program[GC_LEDGER_NAME_BYTES];
    char tenant[GC_LEDGER_NAME_BYTES]; /* GPUCACHE_TENANT, else the program's name */
    char group[GC_LEDGER_NAME_BYTES];  /* "": none */
};

struct gc_ledger_figures {
#define GC_LEDGER_FIGURE(field) uint64_t field;
#include "core/ledger/figures.def"
#undef GC_LEDGER_FIGURE
};

struct gc_ledger_tenant {
    char name[GC_LEDGER_NAME_BYTES];
    uint32_t device; /* index of a device row; GC_LEDGER_NONE: all devices */
    bool is_paused;
    bool is_away;
    struct gc_ledger_figures figures;
};

/* A process's turns in the memory of its group. Times are durations until the reading. */
struct gc_ledger_turn {
    enum gc_turn_state state;
    uint32_t priority;
    bool is_pinned;
    uint64_t idle_ns;    /* without work; 0: it has work */
    uint64_t waiting_ns; /* for memory; 0: it does not wait */
    uint64_t waited_ns;  /* in all, this wait included */
    uint64_t quantum_ns;
    uint64_t exchange_count;
    uint64_t out_bytes;
    uint64_t in_bytes;
    uint64_t host_bytes; /* of swapped and spilled memory, in use or kept */
};

struct gc_ledger_group {
    char name[GC_LEDGER_NAME_BYTES];
    uint32_t member_count;
    uint64_t limits[GC_LEDGER_DEVICES]; /* UINT64_MAX: none */
    uint64_t held[GC_LEDGER_DEVICES];   /* sum of the accounts, dying processes' included */
    uint64_t peaks[GC_LEDGER_DEVICES];  /* of held, since the group's first process */
};

/* Counters of all processes of a group on a device, ended ones included. */
struct gc_ledger_totals {
#define GC_LEDGER_FIGURE(field)
#define GC_LEDGER_COUNTER(field) uint64_t field;
#include "core/ledger/figures.def"
#undef GC_LEDGER_FIGURE
};

struct gc_ledger_turn_totals {
    uint64_t exchange_count;
    uint64_t out_bytes;
    uint64_t in_bytes;
    uint64_t waited_ns;
};

/* Slots from this number on were never used. */
uint32_t gc_ledger_slot_high(const struct gc_ledger *ledger);
/* False if no live process holds the slot (tests its lock). A slot that is just being claimed may
 * briefly show its former owner. */
bool gc_ledger_read_process(const struct gc_ledger *ledger, uint32_t slot,
                            struct gc_ledger_process *process);
/* False if the slot's process does not use the device, or the index is out of range. */
bool gc_ledger_read_figures(const struct gc_ledger *ledger, uint32_t slot, uint32_t device,
                            struct gc_ledger_figures *figures);
/* Tenant row `index` of the process, up to GC_LEDGER_TENANTS; false if unused. */
bool gc_ledger_read_tenant(const struct gc_ledger *ledger, uint32_t slot, uint32_t index,
                           struct gc_ledger_tenant *tenant);
/* False if the process takes no turns. `now_ns`: CLOCK_MONOTONIC. */
bool gc_ledger_read_turn(const struct gc_ledger *ledger, uint32_t slot, uint64_t now_ns,
                         struct gc_ledger_turn *turn);
/* Device row `index`, up to GC_LEDGER_DEVICES; false if unused. */
bool gc_ledger_read_device(const struct gc_ledger *ledger, uint32_t index,
                           struct gc_ledger_device *device);
/* Group row `index`, up to GC_LEDGER_GROUPS; false if unused. Groups without processes stay in the
 * table. Reaps the accounts of dead processes first. */
bool gc_ledger_read_group(const struct gc_ledger *ledger, uint32_t index,
                          struct gc_ledger_group *group);
/* As that, without its number of processes, and with the accounts of dead ones. Tests no lock. */
bool gc_ledger_read_group_row(const struct gc_ledger *ledger, uint32_t index,
                              struct gc_ledger_group *group);

/* The counters of group row `index` on each device row, and of its turns; GC_LEDGER_GROUPS: of
 * processes without a group. They never fall while the group has its row. O(slots). */
void gc_ledger_read_totals(const struct gc_ledger *ledger, uint32_t index,
                           struct gc_ledger_totals totals[GC_LEDGER_DEVICES],
                           struct gc_ledger_turn_totals *turns);

struct gc_ledger_group_use {
    uint64_t limit_bytes; /* UINT64_MAX: none */
    uint64_t held_bytes;
    uint32_t member_count;
};
/* Opens the ledger in `folder`, reads a group's use of the device with this UUID, and closes it.
 * False: there is no ledger, or the group or the device is not in it. */
bool gc_ledger_read_group_use(const char *folder, const char *group, const char *uuid,
                              struct gc_ledger_group_use *share);

/* ---- rows and slots, for the processes that take part ---- */

/* The key of a name in the tables; never 0. */
uint64_t gc_ledger_key(const char *name);
/* The memory of a context on a device as last measured by any process; 0: not known. */
uint64_t gc_ledger_context_bytes(const struct gc_ledger *ledger, const char *uuid);
/* The row of a device, added if there is none. GC_LEDGER_NONE: the table is full, or there is no
 * memory for its accounts. */
uint32_t gc_ledger_find_or_add_device(struct gc_ledger *ledger,
                                      const struct gc_ledger_device *device);
/* The row of a group, added if there is none. GC_LEDGER_NONE: the table is full. */
uint32_t gc_ledger_find_or_add_group(struct gc_ledger *ledger, const char *name);
struct gc_ledger_slot *gc_ledger_get_slot(const struct gc_ledger *ledger, uint32_t slot);
static inline struct gc_ledger_slot *gc_ledger_own_slot(const struct gc_ledger *ledger)
{
    return gc_ledger_get_slot(ledger, ledger->own);
}
/* Whether a live process holds the slot, this process included. */
bool gc_ledger_is_held(const struct gc_ledger *ledger, uint32_t slot);
/* Copies a text into the file, cut to size. */
void gc_ledger_set_text(char *to, size_t size, const char *from);
/* Whether `stored` is the text as gc_ledger_set_text stores it. */
bool gc_ledger_is_text(const char *stored, size_t size, const char *text);
/* Copies a text out of the file, cut to size. */
void gc_ledger_get_text(char *to, size_t size, const char *from);

/* ---- requests to a process ---- */

enum gc_ledger_result {
    GC_RESPONSE_NONE,    /* not yet; may still arrive */
    GC_RESPONSE_DONE,    /* `text` is the result */
    GC_RESPONSE_REFUSED, /* `text` is the reason */
    GC_RESPONSE_ENDED,   /* the process ended */
};

struct gc_ledger_request {
    enum gc_ledger_request_kind kind;
    uint32_t device;    /* of a limit: index of a device row; GC_LEDGER_NONE: all devices */
    uint64_t bytes;     /* of a limit; UINT64_MAX: none. To release or give up */
    const char *tenant; /* of a pause or resume; NULL: the whole process */
    bool drop;          /* of a pause: the content need not survive */
};

struct gc_ledger_ticket {
    uint32_t slot;
    uint32_t generation;
    uint32_t number;
    enum gc_ledger_request_kind kind;
};

/* Writes the request into the process's slot and wakes its helper. False if another process (or
 * none) holds the slot. */
bool gc_ledger_send_request(const struct gc_ledger *ledger, uint32_t slot, uint32_t generation,
                            const struct gc_ledger_request *request,
                            struct gc_ledger_ticket *ticket);
/* Waits up to `timeout_ms` for the response (0: reads once). `text` may be NULL. */
enum gc_ledger_result gc_ledger_wait_response(const struct gc_ledger *ledger,
                                              const struct gc_ledger_ticket *ticket,
                                              uint32_t timeout_ms,
                                              char text[GC_LEDGER_RESPONSE_BYTES]);

/* Whether the process may be asked for its resident memory. False as for a request. */
bool gc_ledger_pin(const struct gc_ledger *ledger, uint32_t slot, uint32_t generation,
                   bool is_pinned);

/* ---- responses, in the process that got the request ---- */

/* Sleeps while the own slot's control word is `seen`, up to `timeout_ms` (UINT32_MAX: no bound).
 * May wake without a request. */
void gc_ledger_wait_request(const struct gc_ledger *ledger, uint32_t seen, uint32_t timeout_ms);
/* Wakes the helper of the process in the slot, without a request. */
void gc_ledger_wake(const struct gc_ledger *ledger, uint32_t slot);
void gc_ledger_respond(const struct gc_ledger *ledger, enum gc_ledger_request_kind kind,
                       enum gc_ledger_result result, const char *text);
/* All requests up to this value of the control word are answered. */
void gc_ledger_set_served(const struct gc_ledger *ledger, uint32_t control);

/* ---- groups ---- */

/* The row of the group with this name; GC_LEDGER_NONE if there is none. */
uint32_t gc_ledger_find_group(const struct gc_ledger *ledger, const char *name);
/* Sets the limit of the whole group, on one device row or all (GC_LEDGER_NONE); UINT64_MAX: none.
 * The limit is in force at once for every process; if the processes together hold more, they are
 * requested to release idle memory. False if there is no such group. */
bool gc_ledger_limit_group(const struct gc_ledger *ledger, const char *name, uint32_t device,
                           uint64_t bytes);

/* ---- slot.c ---- */

/* Claims a free slot and clears it. False: all are held, or there is no memory for one. */
bool gc_ledger_acquire_slot(struct gc_ledger *ledger);
/* Moves the counters of the slot's former owner to its group's totals. The caller has the slot's
 * lock. */
void gc_ledger_fold(const struct gc_ledger *ledger, uint32_t slot);

struct flock;
/* Calls fcntl with `command` for the byte that a slot's owner keeps locked. False with errno. */
bool gc_ledger_lock_byte(const struct gc_ledger *ledger, uint32_t slot, int command,
                         struct flock *lock);
/* Allocates memory for this part of the file, which may be unused so far. False: there is none. */
bool gc_ledger_has_memory(const struct gc_ledger *ledger, const void *part, size_t bytes);

#endif
