/* The link between a device and the host: how long copies between them take (SIMCUDA_LINK).
 *
 * Each direction of a device has one moment until which it is busy, common to all streams and, with
 * SIMCUDA_SHARED, to all processes (CLOCK_MONOTONIC is one for the machine). A copy reserves the
 * link in slices, first come first served, and has at most two slices reserved, so copies that go
 * on at the same time take turns. It ends when its last slice does.
 *
 * A worker wakes later than it asked to. So the copy that follows in a stream may begin at the
 * modelled end of the one before, if the worker did nothing else meanwhile and the copy was queued
 * by then; the reservations of a direction never overlap, whatever the moment they are made at. */
#include "memory.h"

#include <errno.h>
#include <time.h>

#define SLICE_NS UINT64_C(1000000)
#define SECOND_NS UINT64_C(1000000000)

/* The modelled end of the copy that this worker ran last; 0: it has done something else since. */
static __thread uint64_t chain_ns __attribute__((tls_model("initial-exec")));
static __thread bool is_fresh __attribute__((tls_model("initial-exec")));

uint64_t sim_link_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t end_ns)
{
    const struct timespec end = {(time_t)(end_ns / SECOND_NS), (long)(end_ns % SECOND_NS)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
        ;
}

/* Reserves the link for `ns`, not before `start_ns`; the end. */
static uint64_t reserve(atomic_uint_fast64_t *busy_until, uint64_t start_ns, uint64_t ns)
{
    uint_fast64_t busy = atomic_load_explicit(busy_until, memory_order_relaxed);
    uint64_t end_ns;

    do
        end_ns = (busy > start_ns ? busy : start_ns) + ns;
    while (!atomic_compare_exchange_weak_explicit(busy_until, &busy, end_ns, memory_order_relaxed,
                                                  memory_order_relaxed));
    return end_ns;
}

void sim_link_break(void)
{
    chain_ns = 0;
    is_fresh = false;
}

void sim_link_end_item(bool may_chain)
{
    if (!is_fresh && !may_chain)
        chain_ns = 0;
    is_fresh = false;
}

uint64_t sim_link_start_ns(uint64_t queued_ns)
{
    if (chain_ns == 0 || queued_ns == 0 || sim_settings()->work_us != 0)
        return sim_link_now_ns();
    return chain_ns > queued_ns ? chain_ns : queued_ns;
}

/* Nanoseconds that the bytes take. */
static uint64_t duration_of(uint64_t bytes, enum sim_direction direction, bool is_pageable)
{
    double ns = (double)bytes * (double)SECOND_NS / (double)sim_settings()->link[direction];

    if (is_pageable)
        ns = ns * 100 / (double)sim_settings()->pageable_percent;
    return (uint64_t)ns;
}

void sim_link_pass(struct sim_device *device, enum sim_direction direction, uint64_t bytes,
                   bool is_pageable, uint64_t start_ns)
{
    atomic_uint_fast64_t *busy_until = sim_capacity_link(device, direction);
    uint64_t left_ns = duration_of(bytes, direction, is_pageable);
    uint64_t end_ns = start_ns, before_ns = 0;

    do {
        const uint64_t slice_ns = left_ns < SLICE_NS ? left_ns : SLICE_NS;

        end_ns = reserve(busy_until, end_ns, slice_ns);
        left_ns -= slice_ns;
        sleep_until(before_ns);
        before_ns = end_ns;
    } while (left_ns > 0);
    sleep_until(end_ns);
    chain_ns = end_ns;
    is_fresh = true;
}
