/* Inside the room: the state of a process that shares blocks, as exporter (export.c) and as
 * importer (import.c). The functions for the rooms above and the shim are in core/core.h. */
#ifndef GC_SHARE_H
#define GC_SHARE_H

#include "core/base/lock.h"
#include "core/base/slab.h"
#include "core/device/registry.h"
#include "core/share/wire.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Processes that have blocks of this one open at the same time. Each takes a descriptor, of which
 * the program may have few. One more is not answered. */
#define GC_SHARE_CONNECTIONS 128

struct gc_import;
struct gc_exporter;

/* A process that may have blocks of this one open. Only the serving thread uses it, and a forked
 * child, which closes the descriptor. */
struct gc_share_connection {
    struct gc_wire_end end;
    uint64_t owner; /* in gc_core.opens; 0: unused */
    uint32_t pid;   /* 0: not visible here */
    uint64_t start_ticks;
    uint64_t stack_address; /* see gc_ledger_stack_address */
    bool is_lost;           /* the connection broke */
    uint64_t exec_ns;       /* since when each look has found another stack; 0: not so */
};

enum gc_share_state { GC_SHARE_NONE, GC_SHARE_STARTING, GC_SHARE_OPEN, GC_SHARE_FAILED };

struct gc_share {
    struct gc_core *core;

    /* ---- as exporter ---- */
    atomic_uint state; /* enum gc_share_state; the release of OPEN shows the next four */
    int folder;
    uint64_t name;
    uint64_t secret;
    struct gc_wire_end listener;
    struct gc_share_connection connections[GC_SHARE_CONNECTIONS];
    uint64_t last_owner;
    atomic_bool is_busy;    /* the serving thread answers */
    atomic_bool is_exiting; /* it answers no more */

    /* ---- as importer ---- */
    struct gc_lock lock; /* guards the fields below */
    struct gc_condition changed;
    bool is_changing; /* a thread opens or closes; it alone changes the lists */
    struct gc_import *imports;
    struct gc_exporter *exporters;
    struct gc_slab import_records;
    struct gc_slab exporter_records;
    atomic_uint import_count;
    atomic_uint closed_count;         /* imports that the program has closed; still mapped */
    atomic_uint_fast64_t close_count; /* last closes so far */
};

/* For core/alloc. */
enum gc_status gc_share_create(struct gc_core *core) GC_CHECKED;
void gc_share_destroy(struct gc_core *core);
/* Describes the extents of an exported block once and makes its handle. GC_NOT_SUPPORTED: the
 * driver gives no descriptor. */
enum gc_status gc_share_make_handle(struct gc_core *core, uint64_t address, uint64_t id,
                                    void *handle) GC_CHECKED;
/* As gc_export_set_synchronous, for an open block of another process. */
enum gc_status gc_import_set_synchronous(struct gc_core *core, uint64_t address,
                                         bool is_it) GC_CHECKED;
/* Unmaps closed imports whose close could not wait, if all work is done and no capture is on. */
void gc_import_finish_closes(struct gc_core *core);
/* The context, a head, is destroyed: closes the blocks that were opened in it. Another context may
 * have its handle already. */
void gc_import_drop_context(struct gc_core *core, const struct gc_context *context);

/* For export.c. */
void gc_import_init(struct gc_share *share);
void gc_import_fini(struct gc_share *share);
void gc_import_leave_child(struct gc_share *share);

#endif
