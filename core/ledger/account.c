#include "core/ledger/account.h"

#include "core/base/bits.h"
#include "core/base/clock.h"
#include "core/ledger/process.h"
#include "core/ledger/turn.h"

#include <sched.h>
#include <string.h>

/* Bounds of a retry. Processes that announce at once make each other try again; one that was
 * preempted or throttled in between decides late, one that stands still never does. */
#define OVER_ATTEMPTS 3   /* in a row that find the limit exhausted, before it is believed */
#define ATTEMPTS_BUSY 4   /* before the thread yields the processor */
#define ATTEMPTS_AWAKE 64 /* before it sleeps between two attempts */
#define ATTEMPTS_MAX (ATTEMPTS_AWAKE + 1000)
#define SLEEP_NS GC_NS_PER_MS
#define LOWER_WAITS 8 /* yields per attempt while processes in lower slots decide */

static uint64_t bytes_of(uint64_t word)
{
    return word & GC_LEDGER_BYTES_MASK;
}

static uint64_t word_of(uint32_t generation, uint64_t bytes)
{
    return (uint64_t)generation << GC_LEDGER_BYTES_BITS | gc_min_u64(bytes, GC_LEDGER_BYTES_MASK);
}

static uint64_t load(const gc_ledger_word *word)
{
    return atomic_load_explicit(word, memory_order_seq_cst);
}

static uint64_t add_sum(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return gc_add_u64(a, b, &sum) ? sum : UINT64_MAX;
}

/* Sequentially consistent: bytes added here are in the sum of every process that adds later. A word
 * with another generation was written by mistake and counts as 0. */
static void change(gc_ledger_word *word, uint32_t generation, uint64_t plus, uint64_t minus)
{
    uint64_t now = load(word);
    uint64_t next;
    do {
        const uint64_t bytes = now >> GC_LEDGER_BYTES_BITS == generation ? bytes_of(now) : 0;
        next = word_of(generation, gc_sub_or_zero_u64(add_sum(bytes, plus), minus));
    } while (!atomic_compare_exchange_weak_explicit(word, &now, next, memory_order_seq_cst,
                                                    memory_order_relaxed));
}

static uint64_t sum_row(const struct gc_ledger *ledger, const gc_ledger_word *row,
                        uint64_t group_key, uint32_t high)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < high; i++)
        if (load(&ledger->file->group_keys[i]) == group_key)
            sum = add_sum(sum, bytes_of(load(&row[i])));
    return sum;
}

uint64_t gc_account_sum(const struct gc_ledger *ledger, uint32_t device, uint64_t group_key)
{
    if (device > GC_LEDGER_HOST)
        return 0;
    return sum_row(ledger, ledger->file->accounts[device], group_key, gc_ledger_slot_high(ledger));
}

/* ---- rows ---- */

static gc_ledger_word *own_word(struct gc_account *account)
{
    const uint32_t row = gc_account_row(account);
    return &account->ledger->file->accounts[row][account->ledger->own];
}

static gc_ledger_word *own_tentative(struct gc_account *account)
{
    const uint32_t row = gc_account_row(account);
    return &account->ledger->file->tentative[row][account->ledger->own];
}

static bool join_device(struct gc_account *account)
{
    struct gc_ledger *ledger = account->ledger;
    const uint32_t row = gc_ledger_find_or_add_device(ledger, &account->device);
    if (row == GC_LEDGER_NONE)
        return false;
    atomic_fetch_or_explicit(&gc_ledger_own_slot(ledger)->device_mask, UINT64_C(1) << row,
                             memory_order_seq_cst);
    atomic_store_explicit(&account->device_row, row, memory_order_relaxed);
    return true;
}

static bool join_group(struct gc_account *account)
{
    const uint32_t row = gc_ledger_find_or_add_group(account->ledger, account->group);
    if (row == GC_LEDGER_NONE)
        return false;
    atomic_store_explicit(&account->group_row, row, memory_order_relaxed);
    return true;
}

static void describe(struct gc_account *account, struct gc_ledger *ledger, const char *group)
{
    *account = (struct gc_account){
        .ledger = ledger,
        .group_key = gc_ledger_key(group),
        .generation =
            atomic_load_explicit(&gc_ledger_own_slot(ledger)->generation, memory_order_relaxed) &
            GC_LEDGER_GENERATIONS,
    };
    gc_ledger_get_text(account->group, sizeof(account->group), group);
}

void gc_account_open_host(struct gc_account *account, struct gc_ledger *ledger, const char *group)
{
    describe(account, ledger, group);
    atomic_store_explicit(&account->device_row, GC_LEDGER_HOST, memory_order_relaxed);
}

bool gc_account_open(struct gc_account *account, struct gc_ledger *ledger,
                     const struct gc_ledger_device *device, const char *group)
{
    describe(account, ledger, group);
    account->device = *device;
    account->device_key = gc_ledger_key(device->uuid);
    if (!join_device(account) || !join_group(account))
        return false;
    change(own_tentative(account), account->generation, 0, 0);
    change(own_word(account), account->generation, 0, 0);
    return true;
}

/* Another device has taken over the device's row: the held bytes move to the new row. */
static void move_device(struct gc_account *account)
{
    gc_ledger_word *old = own_word(account);
    const uint64_t bytes = bytes_of(load(old));
    if (!join_device(account))
        return;
    if (own_word(account) != old) {
        gc_account_set_guarantee(account, account->guarantee_bytes);
        change(own_word(account), account->generation, bytes, 0);
        change(old, account->generation, 0, bytes);
    }
}

static struct gc_ledger_group_row *group_row(const struct gc_account *account)
{
    const uint32_t group = atomic_load_explicit(&account->group_row, memory_order_relaxed);
    return &account->ledger->file->groups[group];
}

static gc_ledger_word *limit_word(const struct gc_account *account)
{
    return &group_row(account)->limits[gc_account_row(account)];
}

/* Of a sum that was within the limit, if there is one. */
static void raise_peak(struct gc_account *account, uint64_t held)
{
    const uint32_t device = gc_account_row(account);
    if (device == GC_LEDGER_HOST)
        return;
    gc_ledger_word *peak = &group_row(account)->peaks[device];
    uint64_t now = gc_ledger_load(peak);
    while (held > now && !atomic_compare_exchange_weak_explicit(
                             peak, &now, held, memory_order_relaxed, memory_order_relaxed)) {
    }
}

static void check_rows(struct gc_account *account)
{
    const struct gc_ledger_file *file = account->ledger->file;
    const uint32_t device = gc_account_row(account);
    const uint32_t group = atomic_load_explicit(&account->group_row, memory_order_relaxed);
    if (device == GC_LEDGER_HOST)
        return;
    if (__builtin_expect(load(&file->devices[device].key) != account->device_key, 0))
        move_device(account);
    if (__builtin_expect(load(&file->groups[group].key) != account->group_key, 0) &&
        join_group(account)) {
        uint64_t none = 0;
        const uint64_t seen = atomic_load_explicit(&account->limit_seen, memory_order_relaxed);
        (void)atomic_compare_exchange_strong_explicit(limit_word(account), &none, seen,
                                                      memory_order_seq_cst, memory_order_relaxed);
    }
}

uint64_t gc_account_limit(struct gc_account *account)
{
    check_rows(account);
    const uint64_t limit = load(limit_word(account));
    atomic_store_explicit(&account->limit_seen, limit, memory_order_relaxed);
    return limit != 0 ? limit : UINT64_MAX;
}

void gc_account_set_limit(struct gc_account *account, uint64_t limit)
{
    check_rows(account);
    const uint64_t value = limit == UINT64_MAX ? 0 : gc_max_u64(limit, 1);
    atomic_store_explicit(limit_word(account), value, memory_order_seq_cst);
}

bool gc_account_set_first_limit(struct gc_account *account, uint64_t limit)
{
    uint64_t none = 0;
    return atomic_compare_exchange_strong_explicit(limit_word(account), &none, gc_max_u64(limit, 1),
                                                   memory_order_seq_cst, memory_order_relaxed);
}

void gc_account_set_guarantee(struct gc_account *account, uint64_t bytes)
{
    account->guarantee_bytes = bytes;
    atomic_store_explicit(
        &account->ledger->file->guarantees[gc_account_row(account)][account->ledger->own],
        word_of(account->generation, bytes), memory_order_seq_cst);
}

uint64_t gc_account_of(const struct gc_account *account, uint32_t slot)
{
    const uint32_t row = gc_account_row(account);
    return slot < GC_LEDGER_SLOTS ? bytes_of(load(&account->ledger->file->accounts[row][slot])) : 0;
}

uint64_t gc_account_held(struct gc_account *account)
{
    check_rows(account);
    return gc_account_sum(account->ledger, gc_account_row(account), account->group_key);
}

uint64_t gc_account_guarantees(const struct gc_account *account)
{
    const struct gc_ledger *ledger = account->ledger;
    return sum_row(ledger, ledger->file->guarantees[gc_account_row(account)], account->group_key,
                   gc_ledger_slot_high(ledger));
}

/* What the group holds, as a charge must see it that takes this process `more` bytes further: if it
 * is then beyond its own guarantee, each other process counts with at least its guarantee. Each
 * word is read once, so what a process charges meanwhile is counted either as its bytes or as its
 * guarantee. `is_decided`: without announcements. */
static uint64_t sum_claims(const struct gc_account *account, uint64_t more, bool is_decided)
{
    const struct gc_ledger_file *file = account->ledger->file;
    const uint32_t row = gc_account_row(account);
    const uint32_t own = account->ledger->own;
    const uint32_t high = gc_ledger_slot_high(account->ledger);
    const bool keeps = row != GC_LEDGER_HOST && !account->takes_turns &&
                       add_sum(gc_account_of(account, own), more) > account->guarantee_bytes;
    uint64_t sum = more;
    for (uint32_t i = 0; i < high; i++) {
        if (load(&file->group_keys[i]) != account->group_key)
            continue;
        uint64_t bytes = bytes_of(load(&file->accounts[row][i]));
        if (is_decided)
            bytes = gc_sub_or_zero_u64(bytes, bytes_of(load(&file->tentative[row][i])));
        if (keeps && i != own)
            bytes = gc_max_u64(bytes, bytes_of(load(&file->guarantees[row][i])));
        sum = add_sum(sum, bytes);
    }
    return sum;
}

uint64_t gc_account_kept(const struct gc_account *account, uint64_t bytes)
{
    const uint64_t held =
        gc_account_sum(account->ledger, gc_account_row(account), account->group_key);
    return gc_sub_or_zero_u64(sum_claims(account, bytes, false), add_sum(held, bytes));
}

uint64_t gc_account_spare(const struct gc_account *account, uint32_t slot)
{
    const uint32_t row = gc_account_row(account);
    const uint64_t bytes = gc_account_of(account, slot);
    if (row == GC_LEDGER_HOST || slot >= GC_LEDGER_SLOTS || account->takes_turns ||
        gc_account_of(account, account->ledger->own) < account->guarantee_bytes)
        return bytes;
    return gc_sub_or_zero_u64(bytes, bytes_of(load(&account->ledger->file->guarantees[row][slot])));
}

/* ---- charge ---- */

enum verdict { CHARGED, OVER_LIMIT, CONFLICT };

/* Whether the charge would fit without the announcements that are not decided. */
static bool would_fit_alone(struct gc_account *account, uint64_t bytes, uint64_t limit)
{
    return sum_claims(account, bytes, true) <= limit;
}

static enum verdict try_once(struct gc_account *account, uint64_t bytes, uint64_t limit)
{
    gc_ledger_word *word = own_word(account);
    gc_ledger_word *tentative = own_tentative(account);
    change(tentative, account->generation, bytes, 0);
    change(word, account->generation, bytes, 0);
    const uint64_t held = gc_account_held(account);
    const bool fits = sum_claims(account, 0, false) <= limit;
    if (!fits)
        change(word, account->generation, 0, bytes);
    change(tentative, account->generation, 0, bytes);
    if (fits) {
        raise_peak(account, held);
        return CHARGED;
    }
    return would_fit_alone(account, bytes, limit) ? CONFLICT : OVER_LIMIT;
}

/* Waits for processes with a lower slot: their charges are decided first. */
static void wait_for_lower_slots(struct gc_account *account)
{
    const struct gc_ledger_file *file = account->ledger->file;
    const uint32_t row = gc_account_row(account);
    for (int n = 0; n < LOWER_WAITS; n++) {
        uint64_t announced = sum_row(account->ledger, file->tentative[row], account->group_key,
                                     account->ledger->own);
        if (announced == 0)
            return;
        sched_yield();
    }
}

static bool must_wait(struct gc_account *account, uint64_t limit)
{
    return account->takes_turns &&
           gc_turn_has_earlier(account->ledger, account->group_key, gc_account_row(account), limit);
}

bool gc_account_has_room(struct gc_account *account, uint64_t bytes)
{
    const uint64_t limit = gc_account_limit(account);
    return sum_claims(account, bytes, false) <= limit && !must_wait(account, limit);
}

/* Between two attempts, the longer the more there were. Asleep, it also takes back what processes
 * announced that ended before they decided. */
static void wait_for_others(struct gc_account *account, int attempts)
{
    bool has_dying;
    if (attempts < ATTEMPTS_BUSY)
        return;
    wait_for_lower_slots(account);
    if (attempts < ATTEMPTS_AWAKE)
        return;
    (void)gc_account_reap(account->ledger, gc_account_row(account), account->group_key, &has_dying);
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}

static bool try_charge_below(struct gc_account *account, uint64_t bytes, uint64_t limit)
{
    int over_count = 0;
    for (int i = 0; i < ATTEMPTS_MAX; i++) {
        const enum verdict verdict = try_once(account, bytes, limit);
        if (verdict == CHARGED)
            return true;
        /* An announcement that was decided between two readings looks like held bytes. */
        over_count = verdict == OVER_LIMIT ? over_count + 1 : 0;
        if (over_count == OVER_ATTEMPTS)
            return false;
        wait_for_others(account, i);
    }
    return false;
}

bool gc_account_try_charge(struct gc_account *account, uint64_t bytes)
{
    const uint64_t limit = gc_account_limit(account);
    if (limit == UINT64_MAX) {
        gc_account_force_charge(account, bytes);
        return true;
    }
    return bytes <= limit && !must_wait(account, limit) && try_charge_below(account, bytes, limit);
}

bool gc_account_try_charge_host(struct gc_account *account, uint64_t bytes, uint64_t limit)
{
    bool has_dying;
    return try_charge_below(account, bytes, limit) ||
           (gc_account_reap(account->ledger, GC_LEDGER_HOST, account->group_key, &has_dying) > 0 &&
            try_charge_below(account, bytes, limit));
}

void gc_account_force_charge(struct gc_account *account, uint64_t bytes)
{
    change(own_word(account), account->generation, bytes, 0);
    raise_peak(account, gc_account_held(account));
}

void gc_account_uncharge(struct gc_account *account, uint64_t bytes)
{
    change(own_word(account), account->generation, 0, bytes);
}

/* ---- memory of dead processes ---- */

static void clear_word(gc_ledger_word *word, uint64_t whole)
{
    (void)atomic_compare_exchange_strong_explicit(word, &whole, 0, memory_order_seq_cst,
                                                  memory_order_relaxed);
}

/* Reads the words before it tests the slot's lock, and swaps them for 0 only if unchanged: a new
 * owner changes the generation in the words first, so none of its bytes can be lost. */
static uint64_t reap_slot(const struct gc_ledger *ledger, uint32_t device, uint32_t slot,
                          bool *dying)
{
    struct gc_ledger_file *file = ledger->file;
    const uint64_t word = load(&file->accounts[device][slot]);
    const uint64_t tentative = load(&file->tentative[device][slot]);
    const uint64_t guarantee = device != GC_LEDGER_HOST ? load(&file->guarantees[device][slot]) : 0;
    if ((bytes_of(word) | bytes_of(tentative) | bytes_of(guarantee)) == 0 ||
        gc_ledger_is_held(ledger, slot) || !gc_ledger_is_intact(ledger))
        return 0; /* intact is checked last: the program may just have closed the descriptor */
    if (gc_ledger_process_is_dying(&file->slots[slot])) {
        *dying = true;
        return 0;
    }
    if (device != GC_LEDGER_HOST)
        clear_word(&file->guarantees[device][slot], guarantee);
    clear_word(&file->accounts[device][slot], word);
    clear_word(&file->tentative[device][slot], tentative);
    return bytes_of(word);
}

uint64_t gc_account_reap(const struct gc_ledger *ledger, uint32_t device, uint64_t group_key,
                         bool *has_dying)
{
    const uint32_t high = gc_ledger_slot_high(ledger);
    uint64_t reaped = 0;
    *has_dying = false;
    if (device > GC_LEDGER_HOST || !gc_ledger_is_intact(ledger))
        return 0;
    for (uint32_t i = 0; i < high; i++)
        if (atomic_load_explicit(&ledger->file->group_keys[i], memory_order_seq_cst) == group_key)
            reaped += reap_slot(ledger, device, i, has_dying);
    return reaped;
}
