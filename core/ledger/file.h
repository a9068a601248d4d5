/* The layout of the ledger's file, as all processes of one user map it. A file of zeroes after the
 * head is an empty ledger. Rows never move; a change of the layout raises GC_LEDGER_VERSION.
 *
 * All content was written by another process, perhaps a hostile one, and may change while it is
 * read: indices are bounded, numbers compared or added with saturation, texts copied with a bound.
 *
 * A slot is held by an open-file-description write lock on byte GC_LEDGER_LOCK_BASE + slot, after
 * the content. Device and group rows are published by one compare-and-swap of their key; the text
 * beside the key is the same from every writer.
 *
 * An account's word is generation << GC_LEDGER_BYTES_BITS | bytes. The generation is the slot's:
 * the word of a dead owner is swapped for 0, which fails if a new owner has claimed the slot
 * meanwhile. */
#ifndef GC_LEDGER_FILE_H
#define GC_LEDGER_FILE_H

#include <stdatomic.h>
#include <stdint.h>

#define GC_LEDGER_MAGIC UINT64_C(0x3172676c63616367) /* "gcaclgr1" */
#define GC_LEDGER_VERSION 4
#define GC_LEDGER_SLOTS 2048
#define GC_LEDGER_DEVICES 64
#define GC_LEDGER_HOST GC_LEDGER_DEVICES /* the row of accounts after the devices': host memory */
#define GC_LEDGER_GROUPS 256
#define GC_LEDGER_TENANTS 16 /* tenants of one process */
#define GC_LEDGER_NAME_BYTES 64
#define GC_LEDGER_UUID_BYTES 48
#define GC_LEDGER_RESPONSE_BYTES 156
#define GC_LEDGER_BYTES_BITS 48
#define GC_LEDGER_GENERATIONS UINT32_C(0xffff) /* a slot's generation counts modulo this + 1 */
#define GC_LEDGER_BYTES_MASK ((UINT64_C(1) << GC_LEDGER_BYTES_BITS) - 1)

typedef _Atomic uint64_t gc_ledger_word;
typedef _Atomic uint32_t gc_ledger_half;

/* Requests to a process; bit 1 << kind of a slot's `requests`. */
enum gc_ledger_request_kind {
    GC_REQUEST_REFRESH, /* write the figures to the slot */
    GC_REQUEST_TRIM,    /* release all idle memory */
    GC_REQUEST_ROOM,    /* release idle memory, up to `room` bytes */
    GC_REQUEST_LIMIT,   /* apply `limits` as the process's own limits */
    GC_REQUEST_PAUSE,
    GC_REQUEST_RESUME,
    GC_REQUEST_GIVE, /* give up resident memory, up to `give` bytes of each device */
    GC_REQUEST_COUNT
};

struct gc_ledger_response_row {
    gc_ledger_half code; /* enum gc_ledger_result */
    char text[GC_LEDGER_RESPONSE_BYTES];
};

enum gc_ledger_figure {
#define GC_LEDGER_FIGURE(field) GC_LEDGER_FIGURE_##field,
#include "core/ledger/figures.def"
#undef GC_LEDGER_FIGURE
    GC_LEDGER_FIGURE_COUNT
};

/* The figures that only grow; they are kept beyond the end of their process. */
enum gc_ledger_counter {
#define GC_LEDGER_FIGURE(field)
#define GC_LEDGER_COUNTER(field) GC_LEDGER_COUNTER_##field,
#include "core/ledger/figures.def"
#undef GC_LEDGER_FIGURE
    GC_LEDGER_COUNTER_COUNT
};

struct gc_ledger_figure_row {
    _Alignas(128) gc_ledger_word words[16];
};
_Static_assert(GC_LEDGER_FIGURE_COUNT <= 16, "a figure row has room for all");

/* A tenant inside the process: its figures summed over all devices, or of the one it is bound
 * to. */
struct gc_ledger_tenant_row {
    gc_ledger_half in_use;
    gc_ledger_half is_paused;
    gc_ledger_half device; /* index of a device row; GC_LEDGER_DEVICES: all */
    gc_ledger_half is_away;
    uint32_t unused[4];
    char name[GC_LEDGER_NAME_BYTES];
    gc_ledger_word words[16];
    uint64_t padding[4];
};

/* What a process has of its turns in the memory of its group (core/turns). It alone writes the
 * row, but for is_pinned and give. */
struct gc_ledger_turn_row {
    gc_ledger_half state; /* enum gc_turn_state */
    gc_ledger_half priority;
    gc_ledger_half is_pinned;  /* by the tool: it gives nothing up */
    gc_ledger_half refusal;    /* enum gc_swap_refusal: why it last gave nothing */
    gc_ledger_half is_stuck;   /* it waits, and nobody can give: its ticket holds up nobody */
    gc_ledger_half is_passing; /* the refusal's cause goes away by itself, soon */
    gc_ledger_word ticket;     /* 0: it waits for nothing; served in order, then by slot */
    /* CLOCK_MONOTONIC: */
    gc_ledger_word beat_ns;       /* last sign of life; an old one: the process is stopped */
    gc_ledger_word idle_ns;       /* since when it has no work; 0: it has */
    gc_ledger_word gap_ns;        /* it counts as idle only after so long without work */
    gc_ledger_word begin_ns;      /* since when all its memory is resident */
    gc_ledger_word not_before_ns; /* it could not give: not asked again before */
    gc_ledger_word waiting_ns;    /* since when it waits; 0: it does not */
    /* durations */
    gc_ledger_word quantum_ns; /* it keeps its memory so long while it has work */
    gc_ledger_word waited_ns;  /* in all */
    gc_ledger_word exchange_count;
    gc_ledger_word out_bytes; /* copied, or known to be unchanged */
    gc_ledger_word in_bytes;
    gc_ledger_word need[GC_LEDGER_DEVICES]; /* bytes of device row i that it waits for */
    gc_ledger_word away[GC_LEDGER_DEVICES]; /* bytes of device row i in host memory */
    gc_ledger_word give[GC_LEDGER_DEVICES]; /* bytes of device row i that others ask it for */
};

/* A process that takes no part has the state NONE. All but IN and NONE: the gate for its work is
 * closed. */
enum gc_turn_state {
    GC_TURN_NONE,
    GC_TURN_IN,      /* all its memory is resident */
    GC_TURN_LEAVING, /* its work is waited for */
    GC_TURN_AWAY,    /* memory is in host memory, and nothing waits for it */
    GC_TURN_WAITING, /* work or a request waits for memory */
    GC_TURN_STATE_COUNT
};

struct gc_ledger_slot {
    /* a futex: incremented by a requester after setting the bits below */
    _Alignas(4096) gc_ledger_half control;
    gc_ledger_half served; /* a futex: the last control value with all requests answered */
    gc_ledger_half requests;
    gc_ledger_half generation; /* its low 16 bits count */
    gc_ledger_half pid;        /* in its own PID namespace; 0: not filled in */
    gc_ledger_half mode;       /* enum gc_mode */
    gc_ledger_half is_paused;
    gc_ledger_half flags;        /* GC_LEDGER_HAS_… */
    gc_ledger_half request_drop; /* argument of a pause; 1: the content need not survive */
    gc_ledger_word device_mask;  /* bit i: uses device row i */
    gc_ledger_word start_ticks;  /* start time from /proc/PID/stat */
    gc_ledger_word pid_namespace;
    gc_ledger_word start_unix;
    gc_ledger_word figures_ns; /* CLOCK_MONOTONIC of a recent write of the figures */
    /* when a process first found the owner dead with bytes in its account */
    gc_ledger_word death_ns;
    gc_ledger_word agreed_mask; /* device rows whose group limit the process has applied */
    gc_ledger_word limit_mask;  /* bit i: limits[i] is requested */
    char program[GC_LEDGER_NAME_BYTES];
    char tenant[GC_LEDGER_NAME_BYTES];
    char group[GC_LEDGER_NAME_BYTES];
    /* argument of a pause or resume; "": the whole process */
    char request_tenant[GC_LEDGER_NAME_BYTES];
    gc_ledger_word limits[GC_LEDGER_DEVICES];
    gc_ledger_word room[GC_LEDGER_DEVICES];
    struct gc_ledger_turn_row turn;
    struct gc_ledger_response_row responses[GC_REQUEST_COUNT];
    struct gc_ledger_tenant_row tenants[GC_LEDGER_TENANTS];
    struct gc_ledger_figure_row figures[GC_LEDGER_DEVICES];
};

#define GC_LEDGER_HAS_HELPER                                                                       \
    1U /* requests are answered at once, else at the next allocation or submission */

struct gc_ledger_device_row {
    gc_ledger_word key; /* 0: free */
    gc_ledger_word total_bytes;
    gc_ledger_word context_bytes; /* measured bytes of a context; 0: not known */
    char uuid[GC_LEDGER_UUID_BYTES];
    char name[GC_LEDGER_NAME_BYTES];
};

struct gc_ledger_group_row {
    gc_ledger_word key; /* 0: free */
    char name[GC_LEDGER_NAME_BYTES];
    /* 0: none, and the next process may set one; UINT64_MAX: none by request. */
    gc_ledger_word limits[GC_LEDGER_DEVICES];
    gc_ledger_word ticket;                   /* the last one that a process of the group drew */
    gc_ledger_word peaks[GC_LEDGER_DEVICES]; /* of what the processes held together */
};

/* Counters of processes that ended, of one group on one device. */
struct gc_ledger_total_row {
    gc_ledger_word counters[GC_LEDGER_COUNTER_COUNT];
};

/* Figures of the turns of processes that ended, of one group. */
struct gc_ledger_turn_total_row {
    gc_ledger_word exchange_count;
    gc_ledger_word out_bytes;
    gc_ledger_word in_bytes;
    gc_ledger_word waited_ns;
};

struct gc_ledger_file {
    uint64_t magic;
    uint32_t version;
    uint32_t slot_bytes;
    uint64_t file_bytes;
    uint32_t slot_count;
    uint32_t device_count;
    uint32_t group_count;
    gc_ledger_half slot_high; /* slots from this one on were never used */
    struct gc_ledger_device_row devices[GC_LEDGER_DEVICES];
    struct gc_ledger_group_row groups[GC_LEDGER_GROUPS];
    /* A fold moves the counters of a slot's former owner here: folds begun, folds ended. */
    gc_ledger_half folds_begun;
    gc_ledger_half folds_ended;
    gc_ledger_word fold_ns; /* CLOCK_MONOTONIC of the last begin */
    /* By group row; the last one is of processes without a group. */
    struct gc_ledger_total_row totals[GC_LEDGER_GROUPS + 1][GC_LEDGER_DEVICES];
    struct gc_ledger_turn_total_row turn_totals[GC_LEDGER_GROUPS + 1];
    _Alignas(4096) gc_ledger_word group_keys[GC_LEDGER_SLOTS]; /* group of each slot; 0: none */
    gc_ledger_word accounts[GC_LEDGER_DEVICES + 1][GC_LEDGER_SLOTS];
    /* Bytes of an account that are announced and not yet decided. */
    gc_ledger_word tentative[GC_LEDGER_DEVICES + 1][GC_LEDGER_SLOTS];
    /* What a process may always have; encoded as the accounts. */
    gc_ledger_word guarantees[GC_LEDGER_DEVICES][GC_LEDGER_SLOTS];
    struct gc_ledger_slot slots[GC_LEDGER_SLOTS];
};

/* The locked bytes lie after the content. */
#define GC_LEDGER_LOCK_BASE ((int64_t)sizeof(struct gc_ledger_file))

static inline uint64_t gc_ledger_load(const gc_ledger_word *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static inline uint32_t gc_ledger_load_half(const gc_ledger_half *half)
{
    return atomic_load_explicit(half, memory_order_relaxed);
}

#endif
