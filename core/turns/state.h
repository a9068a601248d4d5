/* The record of a process that takes turns; for the files of this room. The helper alone uses it,
 * but for `is_demanded`. */
#ifndef GC_TURNS_STATE_H
#define GC_TURNS_STATE_H

#include "core/device/registry.h"
#include "core/group/group.h"
#include "core/ledger/turn.h"

/* Whom the process asks for memory of a device. */
struct gc_turns_asking {
    uint32_t slot; /* GC_LEDGER_NONE: nobody */
    uint64_t held; /* what that process held last */
    uint64_t progress_ns;
    uint64_t room_ns;   /* when idle memory was last requested of all */
    uint64_t vain_ns;   /* since when nobody can give; 0: somebody can */
    uint64_t logged_ns; /* when that was last logged */
    uint64_t woken_ns;  /* when busy processes were last asked to look at their work */
};

struct gc_turns {
    struct gc_core *core;
    struct gc_group_client *client;
    struct gc_ledger_slot *slot;
    atomic_bool is_demanded; /* a thread waits for memory that is away */
    _Atomic uint64_t demanded_ns;
    uint64_t out_ns; /* what the last exchange took */
    uint64_t in_ns;
    uint64_t sampled_ns; /* when its work was last looked at */
    uint64_t idle_ns;    /* since when it had no work when it left; 0: it left busy */
    uint64_t empty_ns;   /* since when the host store has no content; 0: it has */
    struct gc_turns_asking asking[GC_LEDGER_DEVICES];
    uint64_t skip_ns[GC_LEDGER_SLOTS]; /* not asked before: it gave nothing for a long time */
};

/* ---- ask.c ---- */

/* One step towards `need` bytes more on the device: asks, or waits for who was asked. True: the
 * group's limit has room, or there is hope. False: for some time nobody could give, and the log has
 * who holds what and why. */
bool gc_turns_ask(struct gc_turns *turns, struct gc_device *device, uint64_t need);
/* Whether this process has the earliest ticket that needs memory of the device. */
bool gc_turns_is_first(const struct gc_turns *turns, struct gc_device *device);
/* Wakes the helpers of the group's processes that wait for memory. */
void gc_turns_wake_waiting(const struct gc_turns *turns);

#endif
