/* Epochs, and the threads that submit work, each with a line of memory that it alone writes (as the
 * hazard records of asymmetric barriers, liburcu's memb flavour). The list of lines only grows; the
 * line of a thread that ended is used by the next one. Bound: one barrier and one look at each line
 * for a closed gate. */
#define _GNU_SOURCE
#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/device/registry.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#define LINES 63 /* of a page: with its link 4 KiB */
#define PAUSE_NS 100000

struct gc_submitter_page {
    _Alignas(64) struct gc_submitter_page *next;
    struct gc_submitter lines[LINES];
};

/* ---- epochs ---- */

__attribute__((cold)) void gc_submitter_raise(struct gc_submissions *work)
{
    uint64_t epoch = atomic_load_explicit(&work->epoch, memory_order_relaxed);
    uint_fast64_t submitted = atomic_load_explicit(&work->submitted, memory_order_relaxed);
    if ((epoch & GC_SUBMIT_FENCED) != 0) {
        /* The partner is the addition in gc_submit_open_epoch: either the work is with the driver
         * before a fence is recorded, or it gets a later epoch. */
        atomic_thread_fence(memory_order_seq_cst);
        epoch = atomic_load_explicit(&work->epoch, memory_order_relaxed);
    }
    epoch &= ~GC_SUBMIT_FLAGS;
    /* It only rises: a thread that read an older epoch may come late. Release: pairs with the load
     * in gc_submit_epoch_of_free; the program's own synchronisation orders the two as well. */
    while (submitted < epoch &&
           !atomic_compare_exchange_weak_explicit(&work->submitted, &submitted, epoch,
                                                  memory_order_release, memory_order_relaxed))
        ;
}

void gc_submitter_barrier(struct gc_submissions *work)
{
    GC_ASSERT(gc_lock_held_count() == 0);
    /* Acquire: pairs with the release below. */
    if (atomic_load_explicit(&work->is_fenced, memory_order_acquire)) {
        atomic_thread_fence(memory_order_seq_cst);
        return;
    }
    if (gc_gate_make_barrier())
        return;
    /* A thread that has read the epoch or the gate's word without these bits made its stores before
     * or makes them during the sleep. */
    atomic_fetch_or_explicit(&work->epoch, GC_SUBMIT_FENCED, memory_order_seq_cst);
    atomic_fetch_or_explicit(&work->gate.word, GC_GATE_FENCED, memory_order_seq_cst);
    gc_gate_wait_stores();
    atomic_store_explicit(&work->is_fenced, true, memory_order_release);
}

/* ---- lines ---- */

void gc_submitters_init(struct gc_core *core)
{
    if (gc_gate_register_barrier())
        return;
    atomic_init(&core->work.epoch, GC_SUBMIT_FENCED | 1);
    atomic_init(&core->work.gate.word, GC_GATE_FENCED);
    atomic_init(&core->work.is_fenced, true);
}

void gc_submitters_fini(struct gc_core *core)
{
    struct gc_submitter_page *page = atomic_load_explicit(&core->work.pages, memory_order_relaxed);
    while (page != NULL) {
        struct gc_submitter_page *next = page->next;
        gc_host_mem_unmap(&core->host, page, sizeof(*page));
        page = next;
    }
}

/* A child of fork finds no open line, whichever way it was made. */
static bool wipe_on_fork(void *memory, uint64_t bytes)
{
#ifdef MADV_WIPEONFORK
    return madvise(memory, bytes, MADV_WIPEONFORK) == 0;
#else
    (void)memory;
    (void)bytes;
    return false;
#endif
}

static struct gc_submitter_page *add_page(struct gc_core *core)
{
    struct gc_submissions *work = &core->work;
    struct gc_submitter_page *page = gc_host_mem_map(&core->host, sizeof(*page));
    if (page == NULL)
        return NULL;
    if (!wipe_on_fork(page, sizeof(*page))) {
        gc_host_mem_unmap(&core->host, page, sizeof(*page));
        return NULL;
    }
    struct gc_submitter_page *first = atomic_load_explicit(&work->pages, memory_order_relaxed);
    /* Release: pairs with the acquire in first_page. */
    do
        page->next = first;
    while (!atomic_compare_exchange_weak_explicit(&work->pages, &first, page, memory_order_release,
                                                  memory_order_relaxed));
    return page;
}

static struct gc_submitter_page *first_page(struct gc_submissions *work)
{
    return atomic_load_explicit(&work->pages, memory_order_acquire);
}

static struct gc_submitter *claim_line(struct gc_submitter_page *page)
{
    for (unsigned i = 0; i < LINES; i++) {
        struct gc_submitter *line = &page->lines[i];
        /* Acquire: pairs with the release in gc_submitter_destroy. */
        if (!atomic_load_explicit(&line->is_used, memory_order_relaxed) &&
            !atomic_exchange_explicit(&line->is_used, true, memory_order_acquire))
            return line;
    }
    return NULL;
}

struct gc_submitter *gc_submitter_create(struct gc_core *core)
{
    struct gc_submitter *line = NULL;
    for (struct gc_submitter_page *page = first_page(&core->work); page != NULL && line == NULL;
         page = page->next)
        line = claim_line(page);
    while (line == NULL) {
        struct gc_submitter_page *page = add_page(core);
        if (page == NULL)
            return NULL;
        line = claim_line(page); /* other threads may have been faster, at each of them */
    }
    line->work = &core->work;
    /* Sequentially consistent: the partner is gc_submitter_settle. */
    atomic_fetch_add_explicit(&core->work.line_count, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    /* Last: a line that has this thread as owner is counted (gc_submitter_settle). */
    atomic_store_explicit(&line->owner, (uintptr_t)pthread_self(), memory_order_relaxed);
    return line;
}

void gc_submitter_destroy(struct gc_submitter *line)
{
    if (line->work == NULL)
        return; /* wiped: the parent's */
    /* A signal handler ended the thread in the middle of a call: the driver may have its work. */
    if (atomic_load_explicit(&line->inside, memory_order_relaxed) != 0)
        gc_submit_end(line->work);
    /* First: a thread that gets this one's number later does not own the line. */
    atomic_store_explicit(&line->owner, 0, memory_order_relaxed);
    /* Release: pairs with the acquire in gc_submitter_settle. */
    atomic_fetch_sub_explicit(&line->work->line_count, 1, memory_order_release);
    atomic_store_explicit(&line->inside, 0, memory_order_release);
    atomic_store_explicit(&line->is_used, false, memory_order_release);
}

enum gc_gate_mode gc_submitter_try_enter(struct gc_submissions *work, struct gc_submitter *line)
{
    if (line == NULL)
        return gc_gate_try_enter(&work->gate);
    gc_submitter_move(line, 1);
    atomic_signal_fence(memory_order_seq_cst);
    uint32_t word = gc_gate_read(&work->gate);
    if ((word & GC_GATE_FENCED) != 0) {
        /* Sequentially consistent, as in gc_submitter_close_gate: either this thread sees the gate
         * closed or the closer sees the thread inside. */
        atomic_thread_fence(memory_order_seq_cst);
        word = gc_gate_read(&work->gate);
    }
    const enum gc_gate_mode mode = gc_gate_mode_of(word);
    if ((mode & 1U) != 0)
        gc_submitter_move(line, -1U);
    return mode;
}

/* ---- closing ---- */

void gc_submitter_settle(struct gc_submissions *work)
{
    /* Either this thread sees the line of another one, or that one reads the new epoch. */
    atomic_thread_fence(memory_order_seq_cst);
    const unsigned count = atomic_load_explicit(&work->line_count, memory_order_acquire);
    if (count == 0)
        return;
    /* An owned line is counted, so if this thread owns one and one is counted, it is the only one.
     * Elsewhere than first a line costs a barrier. */
    const struct gc_submitter *line = &first_page(work)->lines[0];
    if (count > 1 ||
        atomic_load_explicit(&line->owner, memory_order_relaxed) != (uintptr_t)pthread_self())
        gc_submitter_barrier(work);
}

void gc_submitter_close_gate(struct gc_submissions *work)
{
    gc_gate_set(&work->gate, GC_GATE_CLOSED);
    gc_submitter_barrier(work);
}

static bool is_inside(struct gc_submissions *work)
{
    /* A line that is added now is of a thread that finds the gate closed. */
    for (const struct gc_submitter_page *page = first_page(work); page != NULL; page = page->next)
        for (unsigned i = 0; i < LINES; i++)
            /* Acquire: pairs with the release in gc_submitter_move. */
            if (atomic_load_explicit(&page->lines[i].inside, memory_order_acquire) != 0)
                return true;
    return false;
}

bool gc_submitter_drain_gate(struct gc_submissions *work, uint32_t timeout_ms)
{
    const struct timespec pause = {0, PAUSE_NS};
    const int64_t end_ms = gc_clock_ms() + timeout_ms;
    while (is_inside(work)) {
        if (gc_clock_ms() >= end_ms)
            return false;
        nanosleep(&pause, NULL);
    }
    const int64_t left_ms = end_ms - gc_clock_ms();
    return gc_gate_drain(&work->gate, left_ms > 0 ? (uint32_t)left_ms : 0);
}
