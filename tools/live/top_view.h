/* The data of `gpucache top`: subjects (devices, groups, processes, tenants) with an account on
 * each device they use. One reading of the ledger fills a view, which owns its data.
 *
 * A reader adds devices, processes, their tenants, groups with their limits, and accounts (those of
 * one subject consecutively); top_view_close then computes the sums of devices and groups. Names
 * are untrusted bytes: escape them before printing. Sums saturate. */
#ifndef GC_TOP_VIEW_H
#define GC_TOP_VIEW_H

#include "core/ledger/ledger.h"
#include "tools/node/host_process.h"
#include "tools/node/node.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOP_NAME_BYTES 64
#define TOP_NO_LIMIT UINT64_MAX
#define TOP_NONE SIZE_MAX
#define TOP_DEVICES_MAX 256

/* Up to TOP_GROUP, figures are sums over processes. */
enum top_kind { TOP_DEVICE, TOP_GROUP, TOP_PROCESS, TOP_TENANT };
enum top_state { TOP_RUNNING, TOP_PAUSED, TOP_AWAY, TOP_STOPPED };

struct top_subject {
    enum top_kind kind;
    enum top_state state;
    int pid;
    size_t ledger; /* the number of its ledger in the reading; groups of two ledgers are two */
    uint32_t slot; /* of a process, in its ledger */
    uint32_t generation;
    /* the same in all readings while the subject exists, a group or device included */
    uint64_t key;
    char name[TOP_NAME_BYTES];
    char program[TOP_NAME_BYTES]; /* of a process */
    char group[TOP_NAME_BYTES];   /* "": none */
    size_t parent;                /* of a tenant: its process */
    uint32_t process_count;       /* processes of a group, on a device */
    uint32_t age_ms;              /* since its figures were published; UINT32_MAX: unknown */
    bool takes_turns;             /* a process, with GPUCACHE_OVERCOMMIT=swap */
    struct gc_ledger_turn turn;
    char user[sizeof(((struct node_ledger *)0)->user)];
    struct node_labels labels; /* of a process; container and job also from its control group */
    struct host_process host;  /* of a process */
};

struct top_account {
    size_t subject;
    size_t device; /* index in `devices`; TOP_NONE: no device yet */
    size_t anchor; /* row under which it is listed: the process's for a tenant, else its own */
    struct gc_ledger_figures figures; /* a sum has no peak */
};

struct top_device {
    char uuid[48];
    char name[TOP_NAME_BYTES]; /* "": unknown */
    unsigned number;           /* the number that --device takes */
    uint64_t total_bytes;      /* capacity; 0: unknown */
};

struct top_view {
    struct top_device devices[TOP_DEVICES_MAX];
    size_t device_count;
    struct top_subject *subjects;
    size_t subject_count;
    size_t subject_room;
    struct top_account *accounts;
    size_t account_count;
    size_t account_room;
    size_t process_count;
    size_t group_count;
    bool is_of_all_users;
    size_t truncated_count; /* ledgers of which not all rows are shown */
    bool failed;            /* an allocation failed */
};

void top_view_init(struct top_view *view);
void top_view_fini(struct top_view *view);

/* Returns the new subject's index; TOP_NONE if memory runs out (recorded in `failed`). */
size_t top_view_add(struct top_view *view, const struct top_subject *subject);
/* TOP_NONE if there are TOP_DEVICES_MAX already. */
size_t top_view_add_device(struct top_view *view, const struct top_device *device);
void top_view_add_account(struct top_view *view, size_t subject, size_t device,
                          const struct gc_ledger_figures *figures);

/* Computes the sums. Call it once, after everything was added. GC_NO_HOST_MEMORY, also for
 * earlier failures. */
enum gc_status top_view_close(struct top_view *view) GC_CHECKED;

/* ---- order ---- */

enum top_sort {
#define TOP_SORT(name, text, key) TOP_SORT_##name,
#include "tools/live/top_sort.def"
#undef TOP_SORT
    TOP_SORT_COUNT
};

struct top_order {
    enum top_sort sort;
    bool reverse;
    bool hide_tenants;
    size_t device;     /* TOP_NONE: all */
    const char *group; /* only this one; NULL: all */
    const char *user;  /* as group */
};

/* The order's word on the command line, and its key on the screen. */
const char *top_sort_word(enum top_sort sort);
char top_sort_key(enum top_sort sort);
/* False if there is no such word. */
bool top_sort_find(const char *word, enum top_sort *sort);

/* Indices of the accounts to show, in order, tenants after their process. NULL if memory runs
 * out. The caller frees it. */
size_t *top_view_sort(const struct top_view *view, const struct top_order *order, size_t *count);

/* Whether a process of the view takes turns, or memory lies in host memory. */
bool top_view_has_turns(const struct top_view *view);

/* Whether a process of the view is in a pod, a container or a job. */
struct top_places {
    bool has_pod, has_container, has_job;
};
struct top_places top_view_places(const struct top_view *view);

/* The part of the memory that is on the device, in percent; 100 where there is none. */
unsigned top_resident_percent(const struct gc_ledger_figures *figures);

/* Hits of all requests, in tenths of a percent; -1: there were none. */
int top_hit_permille(const struct gc_ledger_figures *figures);

#endif
