/* Slots and rows of the ledger: see ledger.h. */
#define _GNU_SOURCE
#include "core/ledger/ledger.h"

#include "core/base/bits.h"
#include "core/ledger/process.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- texts ---- */

void gc_ledger_set_text(char *to, size_t size, const char *from)
{
    size_t i = 0;
    for (; i + 1 < size && from[i] != '\0'; i++)
        __atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
    for (; i < size; i++)
        __atomic_store_n(&to[i], '\0', __ATOMIC_RELAXED);
}

bool gc_ledger_is_text(const char *stored, size_t size, const char *text)
{
    for (size_t i = 0; i < size; i++) {
        const char byte = __atomic_load_n(&stored[i], __ATOMIC_RELAXED);
        if (byte != text[i])
            return false;
        if (byte == '\0')
            return true;
    }
    return false;
}

void gc_ledger_get_text(char *to, size_t size, const char *from)
{
    size_t i = 0;
    for (; i + 1 < size; i++) {
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
        if (to[i] == '\0')
            break;
    }
    memset(to + i, 0, size - i);
}

/* FNV-1a, mixed. */
uint64_t gc_ledger_key(const char *name)
{
    uint64_t key = GC_HASH_FNV1A;
    for (; *name != '\0'; name++)
        key = gc_hash_fnv1a(key, (uint8_t)*name);
    key = gc_mix_u64(key);
    return key != 0 ? key : 1;
}

/* ---- slots ---- */

struct gc_ledger_slot *gc_ledger_get_slot(const struct gc_ledger *ledger, uint32_t slot)
{
    return &ledger->file->slots[slot < GC_LEDGER_SLOTS ? slot : 0];
}

uint32_t gc_ledger_slot_high(const struct gc_ledger *ledger)
{
    /* Acquire: pairs with the release in raise_high. */
    const uint32_t high = atomic_load_explicit(&ledger->file->slot_high, memory_order_acquire);
    return high < GC_LEDGER_SLOTS ? high : GC_LEDGER_SLOTS;
}

bool gc_ledger_lock_byte(const struct gc_ledger *ledger, uint32_t slot, int command,
                         struct flock *lock)
{
    *lock = (struct flock){.l_type = F_WRLCK,
                           .l_whence = SEEK_SET,
                           .l_start = GC_LEDGER_LOCK_BASE + (off_t)slot,
                           .l_len = 1};
    int code;
    do
        code = fcntl(ledger->fd, command, lock);
    while (code != 0 && errno == EINTR);
    return code == 0;
}

/* If the lock cannot be tested, no process counts as dead. */
bool gc_ledger_is_held(const struct gc_ledger *ledger, uint32_t slot)
{
    struct flock lock;
    const int saved_errno = errno;
    if (slot >= GC_LEDGER_SLOTS)
        return false;
    if (slot == ledger->own)
        return true;
    const bool is_held =
        !gc_ledger_lock_byte(ledger, slot, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK;
    errno = saved_errno;
    return is_held;
}

/* Does nothing if another file has the descriptor's number. If a file takes the number just before
 * fallocate, that file's size stays. */
bool gc_ledger_has_memory(const struct gc_ledger *ledger, const void *part, size_t bytes)
{
    const off_t offset = (const char *)part - (const char *)ledger->file;
    const int saved_errno = errno;
    int code;
    if (!gc_ledger_is_intact(ledger))
        return false;
    do
        code = fallocate(ledger->fd, FALLOC_FL_KEEP_SIZE, offset, (off_t)bytes);
    while (code != 0 && errno == EINTR);
    const bool is_there = code == 0 || errno == EOPNOTSUPP || errno == ENOSYS;
    errno = saved_errno;
    return is_there;
}

/* ---- rows ---- */

static bool is_device_used(const struct gc_ledger *ledger, uint32_t index)
{
    const uint32_t high = gc_ledger_slot_high(ledger);
    for (uint32_t i = 0; i < high; i++)
        if ((gc_ledger_load(&ledger->file->slots[i].device_mask) >> index & 1) != 0 &&
            gc_ledger_is_held(ledger, i))
            return true;
    return false;
}

static bool is_group_used(const struct gc_ledger *ledger, uint64_t key)
{
    const uint32_t high = gc_ledger_slot_high(ledger);
    for (uint32_t i = 0; i < high; i++)
        if (gc_ledger_load(&ledger->file->group_keys[i]) == key && gc_ledger_is_held(ledger, i))
            return true;
    return false;
}

static void write_device(struct gc_ledger_device_row *row, const struct gc_ledger_device *device)
{
    gc_ledger_set_text(row->uuid, sizeof(row->uuid), device->uuid);
    gc_ledger_set_text(row->name, sizeof(row->name), device->name);
    atomic_store_explicit(&row->total_bytes, device->total_bytes, memory_order_relaxed);
}

static bool swap_key(gc_ledger_word *word, uint64_t old, uint64_t key)
{
    return atomic_compare_exchange_strong_explicit(word, &old, key, memory_order_seq_cst,
                                                   memory_order_relaxed) ||
           old == key;
}

static uint32_t find_device_key(const struct gc_ledger *ledger, uint64_t key)
{
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++)
        if (gc_ledger_load(&ledger->file->devices[i].key) == key)
            return i;
    return GC_LEDGER_NONE;
}

uint64_t gc_ledger_context_bytes(const struct gc_ledger *ledger, const char *uuid)
{
    const uint32_t row = find_device_key(ledger, gc_ledger_key(uuid));
    return row == GC_LEDGER_NONE ? 0 : gc_ledger_load(&ledger->file->devices[row].context_bytes);
}

uint32_t gc_ledger_find_or_add_device(struct gc_ledger *ledger,
                                      const struct gc_ledger_device *device)
{
    struct gc_ledger_file *file = ledger->file;
    const uint64_t key = gc_ledger_key(device->uuid);
    uint32_t found = find_device_key(ledger, key);
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES && found == GC_LEDGER_NONE; i++)
        if (swap_key(&file->devices[i].key, 0, key))
            found = i;
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES && found == GC_LEDGER_NONE; i++) {
        const uint64_t old = gc_ledger_load(&file->devices[i].key);
        if (gc_ledger_is_intact(ledger) && !is_device_used(ledger, i) &&
            swap_key(&file->devices[i].key, old, key)) {
            atomic_store_explicit(&file->devices[i].context_bytes, 0, memory_order_relaxed);
            found = i;
        }
    }
    if (found == GC_LEDGER_NONE ||
        !gc_ledger_has_memory(ledger, file->accounts[found], sizeof(file->accounts[found])) ||
        !gc_ledger_has_memory(ledger, file->tentative[found], sizeof(file->tentative[found])) ||
        !gc_ledger_has_memory(ledger, file->guarantees[found], sizeof(file->guarantees[found])))
        return GC_LEDGER_NONE;
    write_device(&file->devices[found], device);
    return found;
}

static void clear_group(struct gc_ledger_file *file, uint32_t group)
{
    struct gc_ledger_group_row *row = &file->groups[group];
    for (uint32_t i = 0; i < GC_LEDGER_DEVICES; i++) {
        atomic_store_explicit(&row->limits[i], 0, memory_order_relaxed);
        atomic_store_explicit(&row->peaks[i], 0, memory_order_relaxed);
    }
    memset(file->totals[group], 0, sizeof(file->totals[group]));
    memset(&file->turn_totals[group], 0, sizeof(file->turn_totals[group]));
}

static uint32_t find_group_key(const struct gc_ledger *ledger, uint64_t key)
{
    for (uint32_t i = 0; i < GC_LEDGER_GROUPS; i++)
        if (gc_ledger_load(&ledger->file->groups[i].key) == key)
            return i;
    return GC_LEDGER_NONE;
}

uint32_t gc_ledger_find_or_add_group(struct gc_ledger *ledger, const char *name)
{
    struct gc_ledger_file *file = ledger->file;
    const uint64_t key = gc_ledger_key(name);
    uint32_t found = find_group_key(ledger, key);
    for (uint32_t i = 0; i < GC_LEDGER_GROUPS && found == GC_LEDGER_NONE; i++)
        if (swap_key(&file->groups[i].key, 0, key))
            found = i;
    for (uint32_t i = 0; i < GC_LEDGER_GROUPS && found == GC_LEDGER_NONE; i++) {
        const uint64_t old = gc_ledger_load(&file->groups[i].key);
        if (gc_ledger_is_intact(ledger) && !is_group_used(ledger, old) &&
            swap_key(&file->groups[i].key, old, key)) {
            clear_group(file, i);
            found = i;
        }
    }
    if (found != GC_LEDGER_NONE)
        gc_ledger_set_text(file->groups[found].name, sizeof(file->groups[found].name), name);
    return found;
}

uint32_t gc_ledger_find_group(const struct gc_ledger *ledger, const char *name)
{
    return find_group_key(ledger, gc_ledger_key(name));
}
