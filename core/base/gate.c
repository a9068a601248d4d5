#include "core/base/gate.h"

#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/lock.h"

#include <time.h>

#define PAUSE_US 50
#define INSIDE_MS 2000  /* for those inside */
#define CLOSED_MS 10000 /* and for who closed it */

static void pause_a_moment(void)
{
    const struct timespec moment = {0, PAUSE_US * 1000};
    nanosleep(&moment, NULL);
}

bool gc_door_enter_slowly(struct gc_door *door)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    for (;;) {
        const int64_t end_ms = gc_clock_ms() + CLOSED_MS;
        unsigned state;
        do {
            pause_a_moment();
            state = atomic_load_explicit(&door->state, memory_order_acquire);
        } while (state == GC_DOOR_CLOSED && gc_clock_ms() < end_ms);
        if (state != GC_DOOR_OPEN)
            return false;
        atomic_fetch_add_explicit(&door->inside_count, 1, memory_order_seq_cst);
        if (atomic_load_explicit(&door->state, memory_order_seq_cst) == GC_DOOR_OPEN)
            return true;
        gc_door_leave(door);
    }
}

static bool is_anybody_inside(const struct gc_door *door)
{
    return atomic_load_explicit(&door->inside_count, memory_order_seq_cst) != 0;
}

bool gc_door_claim(struct gc_door *door)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    /* Acquire: pairs with gc_door_reopen and gc_door_remove. */
    while (atomic_exchange_explicit(&door->is_claimed, true, memory_order_acquire)) {
        if (gc_door_is_gone(door))
            return false;
        pause_a_moment();
    }
    return true;
}

void gc_door_close(struct gc_door *door)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    atomic_store_explicit(&door->state, GC_DOOR_CLOSED, memory_order_seq_cst);
    const int64_t end_ms = gc_clock_ms() + INSIDE_MS;
    while (is_anybody_inside(door) && gc_clock_ms() < end_ms)
        pause_a_moment();
}

/* Release: who enters, or claims it next, sees what was done meanwhile. */
void gc_door_reopen(struct gc_door *door)
{
    atomic_store_explicit(&door->state, GC_DOOR_OPEN, memory_order_release);
    atomic_store_explicit(&door->is_claimed, false, memory_order_release);
}

void gc_door_remove(struct gc_door *door)
{
    atomic_store_explicit(&door->state, GC_DOOR_GONE, memory_order_release);
}
