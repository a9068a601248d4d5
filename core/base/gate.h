/* Keeps driver calls of ours out of a context while it ends, and its end waiting while one is
 * inside: a program that destroys a context does not know which thread is there on its own
 * account. One word says whether it is open, another counts who is inside.
 *
 * Who enters holds no lock, enters no second door, and stays for one driver call. */
#ifndef GC_DOOR_H
#define GC_DOOR_H

#include <stdatomic.h>
#include <stdbool.h>

enum gc_door_state { GC_DOOR_OPEN, GC_DOOR_CLOSED, GC_DOOR_GONE };

struct gc_door {
    atomic_uint inside_count;
    atomic_uint state; /* enum gc_door_state; zeroed: open */
    atomic_bool is_claimed;
};

/* False: what is behind it is gone. While it is closed waits until it is known which it will be, 10
 * s at most: at a process's end who closed it may be stuck in a driver that is no more. Then it is
 * false too, and nothing is known: gc_door_is_gone. */
bool gc_door_enter_slowly(struct gc_door *door);

static inline bool gc_door_is_gone(const struct gc_door *door)
{
    return atomic_load_explicit(&door->state, memory_order_acquire) == GC_DOOR_GONE;
}

static inline void gc_door_leave(struct gc_door *door)
{
    /* Release: pairs with the load in gc_door_close. */
    atomic_fetch_sub_explicit(&door->inside_count, 1, memory_order_release);
}

static inline bool gc_door_enter(struct gc_door *door)
{
    /* Sequentially consistent, as in gc_door_close: either that sees who is inside, or this sees
     * that it is closed. */
    atomic_fetch_add_explicit(&door->inside_count, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&door->state, memory_order_seq_cst) == GC_DOOR_OPEN)
        return true;
    gc_door_leave(door);
    return gc_door_enter_slowly(door);
}

/* Only one may close it: waits for another thread that means to. False: it is gone. */
bool gc_door_claim(struct gc_door *door);
/* The rest is for who claimed it. Nobody enters any more, and nobody is inside, but for a thread
 * that the driver holds for longer than 2 s: the end of a context, or of a process, does not wait
 * for ever. */
void gc_door_close(struct gc_door *door);
/* It stays after all. */
void gc_door_reopen(struct gc_door *door);
/* It is gone. */
void gc_door_remove(struct gc_door *door);

#endif
