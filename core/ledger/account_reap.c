/* What the dead held. The kernel drops a dead process's lock and closes the device it used in an
 * order of its own, and a device may take a while to take memory back. So a slot whose lock is gone
 * counts on while the kernel still shows its process: for its bytes may still be in use. Where that
 * cannot be looked up (another PID namespace) it counts for a short time more. */
#define _GNU_SOURCE
#include "core/ledger/account.h"

#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/ledger/process.h"

#include <unistd.h>

#define DYING_NS_MAX (10 * GC_NS_PER_S)
#define GRACE_NS (100 * GC_NS_PER_MS)

/* How long ago somebody first saw that the slot's owner is dead. The low bits are its generation: a
 * note that came late, when the slot was another's already, says nothing of that one. */
static uint64_t dead_for_ns(struct gc_ledger_slot *slot)
{
    const uint64_t generation =
        atomic_load_explicit(&slot->generation, memory_order_relaxed) & GC_ACCOUNT_GENERATIONS;
    const uint64_t now = (gc_clock_ns() & ~(uint64_t)GC_ACCOUNT_GENERATIONS) | generation;
    uint64_t first = atomic_load_explicit(&slot->death_ns, memory_order_relaxed);
    if (first == 0 || (first & GC_ACCOUNT_GENERATIONS) != generation) {
        (void)atomic_compare_exchange_strong_explicit(&slot->death_ns, &first, now,
                                                      memory_order_relaxed, memory_order_relaxed);
        return 0;
    }
    return now < first ? UINT64_MAX : now - first;
}

/* Whether it was this process, before it executed the program that it runs now: then all that it
 * held went with the old program. */
static bool is_former_self(const struct gc_ledger_slot *slot, uint32_t pid)
{
    return pid == (uint32_t)getpid() &&
           atomic_load_explicit(&slot->start_ticks, memory_order_relaxed) ==
               gc_ledger_start_ticks(pid);
}

/* Whether the slot's owner, which is dead, may still have device memory. */
static bool is_dying(struct gc_ledger_slot *slot)
{
    const uint64_t dead_ns = dead_for_ns(slot);
    const uint32_t pid = atomic_load_explicit(&slot->pid, memory_order_relaxed);
    if (dead_ns > DYING_NS_MAX || pid == 0)
        return false;
    if (atomic_load_explicit(&slot->pid_namespace, memory_order_relaxed) !=
        gc_ledger_pid_namespace())
        return dead_ns < GRACE_NS;
    return !is_former_self(slot, pid) &&
           gc_ledger_process_exists(pid,
                                    atomic_load_explicit(&slot->start_ticks, memory_order_relaxed));
}

static uint64_t bytes_of(const gc_ledger_word *word, uint64_t *whole)
{
    *whole = atomic_load_explicit(word, memory_order_seq_cst);
    return *whole & GC_LEDGER_BYTES_MASK;
}

static void clear(gc_ledger_word *word, uint64_t whole)
{
    (void)atomic_compare_exchange_strong_explicit(word, &whole, 0, memory_order_seq_cst,
                                                  memory_order_relaxed);
}

/* What is read before the kernel is asked is swapped afterwards: a new owner changes the generation
 * in the words first, so nothing of its own can go. */
static uint64_t reap_slot(const struct gc_ledger *ledger, uint32_t device, uint32_t slot,
                          bool *dying)
{
    struct gc_ledger_file *file = ledger->file;
    uint64_t word, tentative;
    const uint64_t bytes = bytes_of(&file->accounts[device][slot], &word);
    if ((bytes | bytes_of(&file->tentative[device][slot], &tentative)) == 0 ||
        gc_ledger_is_held(ledger, slot) || !gc_ledger_is_intact(ledger))
        return 0; /* the last: the program may have closed the descriptor this moment */
    if (is_dying(&file->slots[slot])) {
        *dying = true;
        return 0;
    }
    clear(&file->accounts[device][slot], word);
    clear(&file->tentative[device][slot], tentative);
    return bytes;
}

bool gc_account_is_dying(const struct gc_ledger *ledger, uint32_t slot)
{
    const struct gc_ledger_file *file = ledger->file;
    uint64_t bytes = 0;
    uint64_t word;
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++)
        if (atomic_load_explicit(&file->devices[i].key, memory_order_relaxed) != 0)
            bytes |= bytes_of(&file->accounts[i][slot], &word);
    return bytes != 0 && is_dying(&ledger->file->slots[slot]);
}

uint64_t gc_account_reap(const struct gc_ledger *ledger, uint32_t device, uint64_t group_key,
                         bool *has_dying)
{
    const uint32_t high = gc_ledger_slot_high(ledger);
    uint64_t reaped = 0;
    *has_dying = false;
    if (device >= GC_LEDGER_DEVICES || !gc_ledger_is_intact(ledger))
        return 0;
    for (uint32_t i = 0; i < high; i++)
        if (atomic_load_explicit(&ledger->file->group_keys[i], memory_order_seq_cst) == group_key)
            reaped += reap_slot(ledger, device, i, has_dying);
    return reaped;
}
