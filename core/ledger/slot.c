/* A process claims a slot of the ledger: the first one whose lock it gets and whose former owner's
 * memory is free. The kernel drops the lock when the process ends. */
#define _GNU_SOURCE
#include "core/ledger/ledger.h"
#include "core/ledger/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>

static void raise_high(struct gc_ledger_file *file, uint32_t high)
{
    uint32_t now = gc_ledger_load_half(&file->slot_high);
    while (now < high &&
           !atomic_compare_exchange_weak_explicit(&file->slot_high, &now, high,
                                                  memory_order_seq_cst, memory_order_relaxed))
        ;
}

/* A device without a key has no accounts, and the file may lack memory for them. */
static bool has_accounts(const struct gc_ledger_file *file, uint32_t row)
{
    return row == GC_LEDGER_HOST ||
           atomic_load_explicit(&file->devices[row].key, memory_order_seq_cst) != 0;
}

/* The words of a slot's accounts in a row get the new owner's generation. */
static void reset_accounts(struct gc_ledger_file *file, uint32_t row, uint32_t slot,
                           uint32_t generation)
{
    const uint64_t word = (uint64_t)generation << GC_LEDGER_BYTES_BITS;
    if (!has_accounts(file, row))
        return;
    if (row != GC_LEDGER_HOST)
        atomic_store_explicit(&file->guarantees[row][slot], word, memory_order_seq_cst);
    atomic_store_explicit(&file->tentative[row][slot], word, memory_order_seq_cst);
    atomic_store_explicit(&file->accounts[row][slot], word, memory_order_seq_cst);
}

/* Whether the former owner of a slot without a lock may still have memory of an account. */
static bool is_dying(const struct gc_ledger *ledger, uint32_t slot)
{
    const struct gc_ledger_file *file = ledger->file;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i <= GC_LEDGER_HOST; i++)
        if (has_accounts(file, i))
            bytes |= atomic_load_explicit(&file->accounts[i][slot], memory_order_seq_cst);
    return (bytes & GC_LEDGER_BYTES_MASK) != 0 &&
           gc_ledger_process_is_dying(&ledger->file->slots[slot]);
}

/* Clears all but the control word and the generation. The latter was raised before: fields of a
 * former owner are void from then on. */
static void clear_slot(struct gc_ledger *ledger, uint32_t number, uint32_t generation)
{
    struct gc_ledger_slot *slot = gc_ledger_get_slot(ledger, number);
    for (uint32_t i = 0; i <= GC_LEDGER_HOST; i++)
        reset_accounts(ledger->file, i, number, generation);
    const uint32_t control = gc_ledger_load_half(&slot->control);
    memset(&slot->requests, 0, sizeof(slot->requests));
    memset(&slot->pid, 0, sizeof(*slot) - offsetof(struct gc_ledger_slot, pid));
    atomic_store_explicit(&slot->served, control, memory_order_relaxed);
}

static void unlock_slot(const struct gc_ledger *ledger, uint32_t slot)
{
    struct flock lock = {.l_type = F_UNLCK,
                         .l_whence = SEEK_SET,
                         .l_start = GC_LEDGER_LOCK_BASE + (off_t)slot,
                         .l_len = 1};
    (void)fcntl(ledger->fd, F_OFD_SETLK, &lock);
}

static bool has_memory(const struct gc_ledger *ledger, uint32_t number)
{
    struct gc_ledger_file *file = ledger->file;
    return gc_ledger_has_memory(ledger, &file->slots[number], sizeof(file->slots[number])) &&
           gc_ledger_has_memory(ledger, &file->accounts[GC_LEDGER_HOST][number],
                                sizeof(gc_ledger_word)) &&
           gc_ledger_has_memory(ledger, &file->tentative[GC_LEDGER_HOST][number],
                                sizeof(gc_ledger_word));
}

/* The caller has the lock. False: the former owner's memory counts, or the file lacks memory. */
static bool claim_slot(struct gc_ledger *ledger, uint32_t number)
{
    struct gc_ledger_slot *slot = &ledger->file->slots[number];
    if (!has_memory(ledger, number) || is_dying(ledger, number))
        return false;
    gc_ledger_fold(ledger, number);
    const uint32_t generation =
        (atomic_fetch_add_explicit(&slot->generation, 1, memory_order_seq_cst) + 1) &
        GC_LEDGER_GENERATIONS;
    atomic_store_explicit(&ledger->file->group_keys[number], 0, memory_order_seq_cst);
    clear_slot(ledger, number, generation);
    raise_high(ledger->file, number + 1);
    ledger->own = number;
    return true;
}

bool gc_ledger_acquire_slot(struct gc_ledger *ledger)
{
    const int saved_errno = errno;
    bool is_taken = false;
    for (uint32_t i = 0; i < GC_LEDGER_SLOTS && !is_taken; i++) {
        struct flock lock;
        if (gc_ledger_lock_byte(ledger, i, F_OFD_SETLK, &lock)) {
            is_taken = claim_slot(ledger, i);
            if (!is_taken)
                unlock_slot(ledger, i);
        } else if (errno != EAGAIN && errno != EACCES) {
            break; /* the file system has no locks */
        }
    }
    errno = saved_errno;
    return is_taken;
}
