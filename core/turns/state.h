/* The record of a process that takes turns, and what the files of this room have of each other. The
 * helper alone uses it, but for what says otherwise. */
#ifndef GC_TURNS_STATE_H
#define GC_TURNS_STATE_H

#include "core/base/clock.h"
#include "core/device/registry.h"
#include "core/group/group.h"
#include "core/ledger/turn.h"
#include "core/pause/swap.h"

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
    atomic_bool is_demanded; /* any thread: one waits for memory that is away */
    _Atomic uint64_t demanded_ns;
    uint64_t out_ns; /* what the last exchange took */
    uint64_t in_ns;
    uint64_t sampled_ns;    /* when its work was last looked at */
    uint64_t idle_ns;       /* since when it had no work when it left; 0: it left busy */
    uint64_t refused_bytes; /* what was resident when it last gave nothing */
    uint64_t guarded_ns;    /* since when some tenant is away */
    uint64_t host_asked_ns; /* when others were last asked for host memory */
    uint64_t empty_ns;      /* since when the host store has no content; 0: it has */
    bool has_queued;        /* it drew a ticket, and its turn has not begun since */
    uint64_t evicted;       /* bytes that left since the last answer to a request for all of it */
    struct gc_turns_asking asking[GC_LEDGER_DEVICES];
    uint64_t skip_ns[GC_LEDGER_SLOTS]; /* not asked before: it gave nothing for a long time */
};

static inline void gc_turns_store(gc_ledger_word *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static inline void gc_turns_add(gc_ledger_word *word, uint64_t value)
{
    gc_turns_store(word, gc_ledger_load(word) + value);
}

/* A sign of life. */
static inline void gc_turns_beat(struct gc_turns *turns)
{
    gc_turns_store(&turns->slot->turn.beat_ns, gc_clock_ns());
}

/* ---- row.c ---- */

/* The process's device, if it has an account in the group; NULL: not this one. */
struct gc_device *gc_turns_device(const struct gc_turns *turns, int ordinal, uint32_t *row);
void gc_turns_set_state(struct gc_turns *turns, enum gc_turn_state state);
enum gc_turn_state gc_turns_state(const struct gc_turns *turns);
/* Looks at the process's work: exact but for a submission at this moment. */
void gc_turns_watch(struct gc_turns *turns, uint64_t now_ns);
/* Writes what is out, of each device. Returns what a turn of the process lacks: not that of tenants
 * that are away. */
uint64_t gc_turns_publish_away(struct gc_turns *turns);
/* A part of an exchange, which others look at before it ends. */
void gc_turns_publish_moved(struct gc_turns *turns, struct gc_device *device, uint64_t bytes,
                            bool is_out);
/* The process waits for memory; with a ticket, where others must give. */
void gc_turns_begin_waiting(struct gc_turns *turns);
void gc_turns_take_ticket(struct gc_turns *turns);
void gc_turns_end_waiting(struct gc_turns *turns);
bool gc_turns_is_in_quantum(const struct gc_turns *turns);
/* Whether a thread waits for more memory: it is served when the rest is back. */
bool gc_turns_wants_more(const struct gc_turns *turns);

/* ---- give.c ---- */

/* Gives what others asked for, if it may. */
void gc_turns_give_all(struct gc_turns *turns);
/* A process that had nothing to give, and has more now, may be asked again. */
void gc_turns_review_refusal(struct gc_turns *turns);
/* Answers the tool, which asks for all of it; other processes do not read the answer. */
gc_request_function gc_turns_respond;

/* ---- exchange.c; `tenant` is NULL for the process ---- */

/* As gc_away_begin, with a deadline. */
bool gc_turns_leave(struct gc_turns *turns, struct gc_tenant *tenant,
                    struct gc_swap_result *result) GC_CHECKED;
/* Gives up so much. `is_exchange`: for memory of this process that comes back. result->refusal:
 * GC_SWAP_OK if anything has left. Returns how long it took. */
uint64_t gc_turns_swap_out(struct gc_turns *turns, struct gc_device *device,
                           const struct gc_tenant *tenant, uint64_t bytes, bool is_exchange,
                           struct gc_swap_result *result);
/* Brings back what has room. Returns how long it took; 0: nothing came. */
uint64_t gc_turns_swap_in(struct gc_turns *turns, struct gc_device *device,
                          const struct gc_tenant *tenant);

/* ---- tenants.c ---- */

enum gc_turns_room { GC_TURNS_NO_ROOM, GC_TURNS_ROOM_LATER, GC_TURNS_ROOM };

/* A thread needs the tenant's memory, which is away. Any thread. */
void gc_turns_demand_tenant(struct gc_turns *turns, struct gc_tenant *tenant);
/* Brings back memory of the tenant that needs it longest, as far as there is room. */
void gc_turns_serve_tenants(struct gc_turns *turns);
/* What the device lacks for the tenant that needs memory longest: its memory, if it is away, else
 * the pages that its threads want; and pages that are wanted for no tenant. `wanted`: all pages
 * that are wanted. */
uint64_t gc_turns_need(const struct gc_turns *turns, struct gc_device *device, uint64_t wanted);
/* Nobody can make room for the memory of that tenant: for a while another one is served. False: it
 * is not away, or there is none. */
bool gc_turns_set_stuck(struct gc_turns *turns);
/* One step towards `need` bytes more for that tenant: another one gives what the group's limit
 * lacks. LATER: it will, its turn is not over. NO_ROOM also where nothing is lacking: ask.c. */
enum gc_turns_room gc_turns_make_room(struct gc_turns *turns, struct gc_device *device,
                                      uint64_t need);
/* The process cannot come back with all its tenants, as others of the group hold more than before:
 * one of them stays away, first of those without work. False: one alone is left, or none would. */
bool gc_turns_leave_tenant(struct gc_turns *turns, struct gc_device *device);
/* For other processes: a tenant without work gives so much. False: there is none. */
bool gc_turns_give_idle(struct gc_turns *turns, struct gc_device *device, uint64_t bytes);

/* ---- ask.c ---- */

/* Whether what hinders goes away by itself. */
bool gc_turns_is_passing(enum gc_swap_refusal refusal);
/* By how much `need` bytes more would pass the group's limit. */
uint64_t gc_turns_lacking(struct gc_device *device, uint64_t need);

/* One step towards `need` bytes more on the device: asks, or waits for who was asked. True: the
 * group's limit has room, or there is hope. False: for some time nobody could give. */
bool gc_turns_ask(struct gc_turns *turns, struct gc_device *device, uint64_t need);
/* Nobody can give: a line with who holds what and why. */
void gc_turns_log_vain(struct gc_turns *turns, struct gc_device *device, uint64_t need);
/* How long after the refusal to try again. Where host memory is short, asks the processes of the
 * group that have all their memory for what they keep of it; if that was done lately, the log says
 * that it is full. */
uint64_t gc_turns_again_ns(struct gc_turns *turns, enum gc_swap_refusal refusal);
/* Whether this process has the earliest ticket that needs memory of the device. */
bool gc_turns_is_first(const struct gc_turns *turns, struct gc_device *device);
/* Wakes the helpers of the group's processes that wait for memory. */
void gc_turns_wake_waiting(const struct gc_turns *turns);

#endif
