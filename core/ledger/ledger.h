/* The ledger: the file through which all processes of one user that use devices under the library
 * know of each other. Read and written by the library in every process and by `gpucache top`,
 * `limit`, `trim`, `pause` and `resume`. Its layout is in ledger_file.h.
 *
 * Nobody waits for anybody: there is no lock on tables, and a slot's lock is only ever tried.
 * Everything read is foreign: texts may hold any byte (print them escaped), numbers any value.
 * All functions are thread-safe but open and close. */
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
    uint32_t own; /* the slot that is held through it; GC_LEDGER_NONE: it only reads and asks */
    uint64_t device_number; /* of the file behind fd, so that another one is noticed */
    uint64_t file_number;
    char path[GC_LEDGER_PATH_BYTES];
};

/* Opens the ledger in `folder` ("": /dev/shm/gpucache-UID). `create`: makes folder and file where
 * they are missing; else GC_NOT_OURS then: nobody is there. GC_IO, GC_FORMAT with `reason`: what is
 * wrong, where, and what is accepted; nothing is changed. */
enum gc_status gc_ledger_open(const char *folder, bool create, struct gc_ledger *ledger,
                              char reason[GC_LEDGER_REASON_BYTES]) GC_CHECKED;
/* Whether its descriptor is still what was opened: programs close what they do not know, and
 * numbers serve again. Without it nobody can be told dead. */
bool gc_ledger_is_intact(const struct gc_ledger *ledger);
/* Whether its name is gone, or another file's: who comes later does not know of this one. */
bool gc_ledger_is_removed(const struct gc_ledger *ledger);
/* Opens the file again. The own slot stays held meanwhile: the mapping keeps its lock. */
bool gc_ledger_repair(struct gc_ledger *ledger);
/* Unmaps and closes: a slot held through it is free. */
void gc_ledger_close(struct gc_ledger *ledger);

/* ---- reading ---- */

struct gc_ledger_device {
    uint64_t total_bytes;
    char uuid[GC_LEDGER_UUID_BYTES];
    char name[GC_LEDGER_NAME_BYTES];
};

struct gc_ledger_process {
    uint32_t slot;
    uint32_t generation; /* with the slot: who it is; another process has another one */
    int pid;
    uint32_t mode; /* enum gc_mode */
    bool is_paused;
    bool has_helper;      /* answers at once, not only when it next allocates or submits */
    uint64_t device_mask; /* bit i: uses device row i */
    uint64_t start_unix;
    uint64_t figures_ns; /* CLOCK_MONOTONIC: when its figures were written; 0: never */
    char program[GC_LEDGER_NAME_BYTES];
    char tenant[GC_LEDGER_NAME_BYTES]; /* GPUCACHE_TENANT, or the program */
    char group[GC_LEDGER_NAME_BYTES];  /* "": none */
};

struct gc_ledger_figures {
#define GC_LEDGER_FIGURE(field) uint64_t field;
#include "core/ledger/figures.def"
#undef GC_LEDGER_FIGURE
};

struct gc_ledger_tenant {
    char name[GC_LEDGER_NAME_BYTES];
    uint32_t device; /* index of a device row; GC_LEDGER_NONE: all together */
    bool is_paused;
    struct gc_ledger_figures figures;
};

struct gc_ledger_group {
    char name[GC_LEDGER_NAME_BYTES];
    uint32_t member_count;
    uint64_t limits[GC_LEDGER_DEVICES]; /* UINT64_MAX: none */
    uint64_t held[GC_LEDGER_DEVICES];   /* the sum of the accounts of live members */
};

/* Slots from this number on were never used. */
uint32_t gc_ledger_slot_high(const struct gc_ledger *ledger);
/* False if no live process holds the slot (asks the kernel). One that is just taking it may for a
 * moment be shown as its former owner. */
bool gc_ledger_read_process(const struct gc_ledger *ledger, uint32_t slot,
                            struct gc_ledger_process *process);
/* False if the slot's process does not use the device, or the index is out of range. */
bool gc_ledger_read_figures(const struct gc_ledger *ledger, uint32_t slot, uint32_t device,
                            struct gc_ledger_figures *figures);
/* The index-th row of tenants inside the process, up to GC_LEDGER_TENANTS; false if unused. */
bool gc_ledger_read_tenant(const struct gc_ledger *ledger, uint32_t slot, uint32_t index,
                           struct gc_ledger_tenant *tenant);
/* Row `index` up to GC_LEDGER_DEVICES; false if unused. */
bool gc_ledger_read_device(const struct gc_ledger *ledger, uint32_t index,
                           struct gc_ledger_device *device);
/* Row `index` up to GC_LEDGER_GROUPS; false if unused. Groups without members stay in the table.
 * Settles the accounts of dead members first. */
bool gc_ledger_read_group(const struct gc_ledger *ledger, uint32_t index,
                          struct gc_ledger_group *group);

struct gc_ledger_group_use {
    uint64_t limit_bytes; /* UINT64_MAX: none */
    uint64_t held_bytes;
    uint32_t member_count;
};
/* Opens the ledger, looks at a group on the device with this UUID, and closes it. False: there is
 * no ledger, or not that group or device in it. */
bool gc_ledger_read_group_use(const char *folder, const char *group, const char *uuid,
                              struct gc_ledger_group_use *share);

/* ---- rows and slots, for who takes part ---- */

/* What names are found by in the tables; never 0. */
uint64_t gc_ledger_key(const char *name);
/* What a context takes on a device, as the last process found that could measure it; 0: not known.
 */
uint64_t gc_ledger_context_bytes(const struct gc_ledger *ledger, const char *uuid);
/* The row of a device, made if there is none. GC_LEDGER_NONE: the table is full, or there is no
 * memory for its accounts. */
uint32_t gc_ledger_find_or_add_device(struct gc_ledger *ledger,
                                      const struct gc_ledger_device *device);
/* The same for a group. */
uint32_t gc_ledger_find_or_add_group(struct gc_ledger *ledger, const char *name);
struct gc_ledger_slot *gc_ledger_get_slot(const struct gc_ledger *ledger, uint32_t slot);
/* Whether another process holds the slot. */
bool gc_ledger_is_held(const struct gc_ledger *ledger, uint32_t slot);
/* Copies a text into the file, cut where it does not fit; and out of it. */
void gc_ledger_set_text(char *to, size_t size, const char *from);
bool gc_ledger_is_text(const char *stored, size_t size, const char *text);
void gc_ledger_get_text(char *to, size_t size, const char *from);

/* ---- asking a process ---- */

enum gc_ledger_result {
    GC_RESPONSE_NONE,    /* not yet; it may still come */
    GC_RESPONSE_DONE,    /* text: what was done */
    GC_RESPONSE_REFUSED, /* text: why */
    GC_RESPONSE_ENDED,   /* the process ended */
};

struct gc_ledger_request {
    enum gc_ledger_request_kind kind;
    uint32_t device;    /* of a limit: index of a device row; GC_LEDGER_NONE: all devices */
    uint64_t bytes;     /* of a limit; UINT64_MAX: none */
    const char *tenant; /* of a pause or resume; NULL: the whole process */
    bool drop;          /* of a pause: the content need not survive */
};

struct gc_ledger_ticket {
    uint32_t slot;
    uint32_t generation;
    uint32_t number;
    enum gc_ledger_request_kind kind;
};

/* Leaves the request in the process's slot and wakes its helper. False if the slot is held by
 * another one (or none) by now. */
bool gc_ledger_send_request(const struct gc_ledger *ledger, uint32_t slot, uint32_t generation,
                            const struct gc_ledger_request *request,
                            struct gc_ledger_ticket *ticket);
/* Waits up to `timeout_ms` for the answer (0: looks once). `text` may be NULL. */
enum gc_ledger_result gc_ledger_wait_response(const struct gc_ledger *ledger,
                                              const struct gc_ledger_ticket *ticket,
                                              uint32_t timeout_ms,
                                              char text[GC_LEDGER_RESPONSE_BYTES]);

/* ---- answering, in the process that was asked ---- */

/* Sleeps while the own slot's control word is `seen`. May wake for nothing. */
void gc_ledger_wait_request(const struct gc_ledger *ledger, uint32_t seen);
void gc_ledger_respond(const struct gc_ledger *ledger, enum gc_ledger_request_kind kind,
                       enum gc_ledger_result result, const char *text);
/* All that was asked up to this value of the control word is answered. */
void gc_ledger_set_served(const struct gc_ledger *ledger, uint32_t control);

/* ---- groups ---- */

/* The row of the group with this name; GC_LEDGER_NONE if there is none. */
uint32_t gc_ledger_find_group(const struct gc_ledger *ledger, const char *name);
/* Sets the limit for the whole group, on one device row or all (GC_LEDGER_NONE); UINT64_MAX: none.
 * In force at once for every member; they are asked to give idle memory back where they hold
 * more together. False if there is no such group. */
bool gc_ledger_limit_group(const struct gc_ledger *ledger, const char *name, uint32_t device,
                           uint64_t bytes);

/* ---- slot.c ---- */

/* Takes a free slot, which is empty then; false: all are held, or there is no memory for one. */
bool gc_ledger_acquire_slot(struct gc_ledger *ledger);

struct flock;
/* fcntl's `command` for the byte that the owner of the slot holds locked. False with errno. */
bool gc_ledger_lock_byte(const struct gc_ledger *ledger, uint32_t slot, int command,
                         struct flock *lock);
/* The file has memory for that part of it, which may be its first use. */
bool gc_ledger_has_memory(const struct gc_ledger *ledger, const void *part, size_t bytes);

#endif
