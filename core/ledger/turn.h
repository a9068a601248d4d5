/* Tickets and candidates of a group whose processes take turns in its memory (core/turns), as the
 * ledger has them.
 *
 * A process that waits for memory draws a ticket from its group's row: a number, higher than all
 * drawn before. Tickets of equal number, after a lost write, are ordered by slot, so the order is
 * total. On each device the earliest ticket that needs its memory is the head: no other process of
 * the group is charged there before it. The ticket of a process that is dead or stopped, that
 * could not fit alone, or that is stuck, since nobody can give it anything, counts for nothing.
 *
 * A process whose resident and needed memory is within its guarantee has its place before all
 * others and waits for nobody's quantum. It is asked for its memory last, and only after it had no
 * work for a while.
 *
 * Safety does not depend on any of this: the account alone bounds what is resident. Lock-free;
 * O(slots). */
#ifndef GC_LEDGER_TURN_H
#define GC_LEDGER_TURN_H

#include "core/ledger/ledger.h"

/* A process that has shown no sign of life for this long is stopped. */
#define GC_TURN_STOPPED_NS UINT64_C(1000000000)

/* A process with work keeps its memory for at least so many times what its last exchange took: so
 * exchanges take at most a twentieth of the time, whatever programs do. */
#define GC_TURN_QUANTUM_TIMES 20

/* A process within its guarantee keeps its memory for so long without work. */
#define GC_TURN_PROTECTED_NS UINT64_C(1000000000)

/* Draws a ticket for this process, which has none. */
void gc_turn_draw(const struct gc_ledger *ledger, uint32_t group_row);
void gc_turn_drop(const struct gc_ledger *ledger);
/* Whether another process of the group has an earlier ticket than this one (or this one has none)
 * and needs memory of the device row. `limit`: the group's there. */
bool gc_turn_has_earlier(const struct gc_ledger *ledger, uint64_t group_key, uint32_t device,
                         uint64_t limit);
/* Whether the earliest ticket that needs memory of the device row is of a process whose memory is
 * to come back. */
bool gc_turn_head_returns(const struct gc_ledger *ledger, uint64_t group_key, uint32_t device,
                          uint64_t limit);
/* Whether all that the process has of the device row, and needs, is within its guarantee there. */
bool gc_turn_is_guaranteed(const struct gc_ledger *ledger, uint32_t slot, uint32_t device);
/* Whether it is, and has or just had work. */
bool gc_turn_is_protected(const struct gc_ledger *ledger, uint32_t slot, uint32_t device,
                          uint64_t now_ns);
/* Whether this process gives its memory before its quantum is over: the head is within its
 * guarantee, and this process is beyond its own. */
bool gc_turn_must_yield(const struct gc_ledger *ledger, uint64_t group_key, uint32_t device,
                        uint64_t limit);
/* Whether the process showed a sign of life lately. */
bool gc_turn_is_alive(const struct gc_ledger_slot *slot, uint64_t now_ns);

/* Since when the process counts as without work; 0: it is busy, or has been idle for less than its
 * work has gaps. */
uint64_t gc_turn_idle_since(const struct gc_ledger_turn_row *turn, uint64_t now_ns);

/* The most that another process of the group has of the device row, resident or away. What passes
 * the limit together is of tenants, which are not in at once: such a process does not count. What
 * comes back at this moment may be in both; the process had no more at once than its peak. */
uint64_t gc_turn_largest_other(const struct gc_ledger *ledger, uint64_t group_key, uint32_t device,
                               uint64_t limit);

/* ---- who gives memory up ---- */

/* Why a process is no candidate now, or GC_TURN_MAY_GIVE. */
enum gc_turn_obstacle {
    GC_TURN_MAY_GIVE,
    GC_TURN_HOLDS_NOTHING,
    GC_TURN_NO_PART,    /* it does not overcommit, or has no helper */
    GC_TURN_STOPPED,    /* no sign of life */
    GC_TURN_PINNED,     /* by the tool */
    GC_TURN_REFUSED,    /* it could not, a short while ago: the row's `refusal` */
    GC_TURN_GUARANTEED, /* it is within its guarantee, and has or just had work */
    GC_TURN_EARLIER,    /* it waits itself, with an earlier ticket */
    GC_TURN_IN_QUANTUM  /* it has work, and its turn is not over */
};

/* Less is first: processes that are away or idle, the longest idle first, and of those that are as
 * long the one of lower priority; then processes that wait, the last ticket first; then busy ones,
 * the lowest priority and the earliest turn first; then idle ones that are within their guarantee.
 */
struct gc_turn_rank {
    uint64_t words[3];
};

/* Whether the process in `slot` can be asked for memory of the device row, and its rank. */
enum gc_turn_obstacle gc_turn_rate(const struct gc_ledger *ledger, uint32_t slot, uint32_t device,
                                   uint64_t now_ns, struct gc_turn_rank *rank);
bool gc_turn_is_before(const struct gc_turn_rank *a, const struct gc_turn_rank *b);

/* Bytes of a device row that this process lacks. */
struct gc_turn_need {
    uint64_t group_key;
    uint32_t device;
    uint64_t bytes;
    uint64_t limit; /* the group's there */
};

/* The process to ask next; GC_LEDGER_NONE: nobody, now. *has_hope: there will be room if all others
 * give what can go; where there is none, nobody is asked: pages would move in vain. `skip_ns`: of
 * each slot, not asked before; NULL: all may be. */
uint32_t gc_turn_choose(const struct gc_ledger *ledger, const struct gc_turn_need *need,
                        uint64_t now_ns, const uint64_t *skip_ns, bool *has_hope);

#endif
