#include "tests/unit/sim_driver.h"

#include "core/base/lock.h"

#include "tests/unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BASE UINT64_C(0x7f0000000000)
#define LARGE_ALIGNMENT (UINT64_C(2) << 20)
#define SMALL_ALIGNMENT UINT64_C(512)

void sim_driver_violate(struct sim_driver *sim, const char *what, uint64_t address)
{
    if (sim->violation_count++ == 0)
        snprintf(sim->violation, sizeof(sim->violation), "%s at 0x%llx", what,
                 (unsigned long long)address);
}

int sim_driver_begin(struct sim_driver *sim, enum sim_call call, uint64_t context)
{
    if (sim->hook != NULL && call != SIM_MEM_INFO)
        sim->hook(sim->hook_argument, call, context);
    pthread_mutex_lock(&sim->lock);
    if (gc_lock_held_count() != 0)
        sim_driver_violate(sim, "a driver call under a lock", (uint64_t)call);
    sim->calls[call]++;
    const uint64_t number = ++sim->total_calls;
    if (sim->fail_from == 0 || number < sim->fail_from ||
        (number > sim->fail_from && !sim->fail_permanently))
        return 0;
    sim->failed_count++;
    return sim->fail_code;
}

int sim_driver_end(struct sim_driver *sim, int code)
{
    pthread_mutex_unlock(&sim->lock);
    return code;
}

static bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

bool sim_driver_is_used(const struct sim_driver *sim, uint64_t address, uint64_t bytes)
{
    for (uint64_t i = 0; i < sim->use_count; i++) {
        if (overlap(address, bytes, sim->uses[i].address, sim->uses[i].bytes))
            return true;
    }
    return false;
}

static bool use_touches(const struct sim_driver *sim, const struct sim_use *use,
                        const struct sim_piece *piece)
{
    for (uint64_t at = 0; at < use->bytes;) {
        const struct sim_piece used =
            sim_mapping_translate(sim, use->address + at, use->bytes - at);
        if (used.handle == piece->handle &&
            overlap(used.offset, used.bytes, piece->offset, piece->bytes))
            return true;
        at += used.bytes;
    }
    return false;
}

/* Whether queued work uses the memory behind the range, by whatever address. */
static bool is_touched(const struct sim_driver *sim, uint64_t address, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        const struct sim_piece piece = sim_mapping_translate(sim, address + at, bytes - at);
        for (uint64_t i = 0; i < sim->use_count; i++) {
            if (use_touches(sim, &sim->uses[i], &piece))
                return true;
        }
        at += piece.bytes;
    }
    return false;
}

static void complete(struct sim_driver *sim, uint64_t context)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < sim->use_count; i++) {
        if (sim->uses[i].context != context)
            sim->uses[kept++] = sim->uses[i];
    }
    sim->use_count = kept;
}

static void remove_allocation(struct sim_driver *sim, uint64_t i)
{
    if (sim->allocations[i].is_host)
        sim->host_bytes -= sim->allocations[i].bytes;
    else
        sim->used_bytes -= sim->allocations[i].bytes;
    sim->allocation_count--;
    memmove(&sim->allocations[i], &sim->allocations[i + 1],
            (sim->allocation_count - i) * sizeof(*sim->allocations));
}

/* The lowest gap that fits; its place in the array is *index. */
static uint64_t find_gap(const struct sim_driver *sim, uint64_t bytes, uint64_t *index)
{
    const uint64_t alignment = bytes >= LARGE_ALIGNMENT ? LARGE_ALIGNMENT : SMALL_ALIGNMENT;
    uint64_t start = BASE;
    for (uint64_t i = 0; i < sim->allocation_count; i++) {
        const struct sim_allocation *next = &sim->allocations[i];
        if (start + bytes <= next->address) {
            *index = i;
            return start;
        }
        start = (next->address + next->bytes + alignment - 1) & ~(alignment - 1);
    }
    *index = sim->allocation_count;
    return start;
}

static void complete_all(struct sim_driver *sim)
{
    for (uint64_t i = 0; i < SIM_CONTEXTS; i++)
        complete(sim, i);
}

static uint64_t add_allocation(struct sim_driver *sim, uint64_t context, uint64_t bytes,
                               bool is_host)
{
    if (sim->allocation_count == sim->allocation_room) {
        sim->allocation_room = sim->allocation_room * 2 + 64;
        sim->allocations =
            realloc(sim->allocations, sim->allocation_room * sizeof(*sim->allocations));
    }
    uint64_t i;
    const uint64_t address = find_gap(sim, bytes, &i);
    memmove(&sim->allocations[i + 1], &sim->allocations[i],
            (sim->allocation_count - i) * sizeof(*sim->allocations));
    sim->allocations[i] = (struct sim_allocation){address, bytes, context, is_host};
    sim->allocation_count++;
    return address;
}

static int mem_alloc(void *self, uint64_t context, uint64_t bytes, uint64_t *address)
{
    struct sim_driver *sim = self;
    const int injected = sim_driver_begin(sim, SIM_MEM_ALLOC, context);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    if (bytes == 0)
        sim_driver_violate(sim, "an allocation of nothing", 0);
    if (bytes > sim->capacity_bytes - sim->used_bytes)
        return sim_driver_end(sim, SIM_OUT_OF_MEMORY);
    *address = add_allocation(sim, context, bytes, false);
    sim->used_bytes += bytes;
    if (sim->used_bytes > sim->peak_bytes)
        sim->peak_bytes = sim->used_bytes;
    return sim_driver_end(sim, 0);
}

static int host_alloc(void *self, uint64_t context, uint64_t bytes, uint64_t *address)
{
    struct sim_driver *sim = self;
    const int injected = sim_driver_begin(sim, SIM_HOST_ALLOC, context);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    if (context < SIM_CONTEXTS && sim->is_capturing[context])
        sim_driver_violate(sim, "a host allocation during a capture", context);
    *address = add_allocation(sim, context, bytes, true);
    sim->host_bytes += bytes;
    return sim_driver_end(sim, 0);
}

static int free_memory(struct sim_driver *sim, enum sim_call call, uint64_t context,
                       uint64_t address, bool waits)
{
    const int injected = sim_driver_begin(sim, call, context);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    if (waits)
        complete_all(sim);
    for (uint64_t i = 0; i < sim->allocation_count; i++) {
        const struct sim_allocation *found = &sim->allocations[i];
        if (found->address != address || found->is_host != (call == SIM_HOST_FREE))
            continue;
        if (found->context != context)
            sim_driver_violate(sim, "memory given back by another context", address);
        if (sim_driver_is_used(sim, address, found->bytes))
            sim_driver_violate(sim, "memory given back while work uses it", address);
        remove_allocation(sim, i);
        return sim_driver_end(sim, 0);
    }
    sim_driver_violate(sim, "a free of no allocation", address);
    return sim_driver_end(sim, 1);
}

static int mem_free(void *self, uint64_t context, uint64_t address)
{
    return free_memory(self, SIM_MEM_FREE, context, address, true);
}

static int host_free(void *self, uint64_t context, uint64_t address)
{
    return free_memory(self, SIM_HOST_FREE, context, address, false);
}

static int mem_free_idle(void *self, uint64_t context, uint64_t address)
{
    return free_memory(self, SIM_MEM_FREE, context, address, false);
}

static int mem_info(void *self, uint64_t context, uint64_t *free_bytes, uint64_t *total_bytes)
{
    struct sim_driver *sim = self;
    const int injected = sim_driver_begin(sim, SIM_MEM_INFO, context);
    *free_bytes = sim->capacity_bytes - sim->used_bytes;
    *total_bytes = sim->capacity_bytes;
    return sim_driver_end(sim, injected);
}

static bool process_bytes(void *self, int ordinal, uint64_t *bytes)
{
    struct sim_driver *sim = self;
    (void)ordinal;
    if (!sim->knows_process)
        return false;
    if (gc_lock_held_count() > 0)
        sim_driver_violate(sim, "the process's bytes asked for under a lock", 0);
    pthread_mutex_lock(&sim->lock);
    *bytes = sim->used_bytes + atomic_load(&sim->own_bytes);
    pthread_mutex_unlock(&sim->lock);
    if (sim->during_process != NULL)
        sim->during_process(sim);
    return true;
}

static int synchronize(void *self, uint64_t context)
{
    struct sim_driver *sim = self;
    const int injected = sim_driver_begin(sim, SIM_SYNCHRONIZE, context);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    if (context < SIM_CONTEXTS && sim->is_capturing[context])
        sim_driver_violate(sim, "a synchronisation during a capture", context);
    complete(sim, context);
    return sim_driver_end(sim, 0);
}

static uint64_t clock_ns(void *self)
{
    struct sim_driver *sim = self;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec +
           atomic_fetch_add(&sim->clock_ahead_ns, sim->clock_step_ns);
}

void sim_driver_init(struct sim_driver *sim, uint64_t capacity_bytes)
{
    *sim = (struct sim_driver){.capacity_bytes = capacity_bytes};
    sim->table = (struct gc_driver){
        .self = sim,
        .out_of_memory = SIM_OUT_OF_MEMORY,
        .context_is_gone = SIM_CONTEXT_IS_GONE,
        .mem_alloc = mem_alloc,
        .mem_free = mem_free,
        .mem_free_idle = mem_free_idle,
        .mem_info = mem_info,
        .process_bytes = process_bytes,
        .synchronize = synchronize,
        .clock_ns = clock_ns,
        .host_alloc = host_alloc,
        .host_free = host_free,
    };
    sim_mapping_init(sim);
    sim_fence_init(sim);
    sim_content_init(sim);
    sim_copy_init(sim);
    pthread_mutex_init(&sim->lock, NULL);
}

void sim_driver_fini(struct sim_driver *sim)
{
    sim_mapping_fini(sim);
    sim_fence_fini(sim);
    sim_content_fini(sim);
    sim_copy_fini(sim);
    free(sim->allocations);
    free(sim->uses);
    pthread_mutex_destroy(&sim->lock);
}

void sim_driver_submit(struct sim_driver *sim, uint64_t context, uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&sim->lock);
    if (sim->use_count == sim->use_room) {
        sim->use_room = sim->use_room * 2 + 64;
        sim->uses = realloc(sim->uses, sim->use_room * sizeof(*sim->uses));
    }
    sim->uses[sim->use_count++] = (struct sim_use){address, bytes, context, ++sim->next_work};
    pthread_mutex_unlock(&sim->lock);
    if (sim->work != NULL)
        gc_submit_end(sim->work);
}

void sim_driver_expect_idle(struct sim_driver *sim, uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&sim->lock);
    if (is_touched(sim, address, bytes))
        sim_driver_violate(sim, "memory handed out while work uses it", address);
    if (sim_mapping_is_reserved(sim, address) && !sim_mapping_is_open(sim, address, bytes, -1))
        sim_driver_violate(sim, "memory handed out that is not there", address);
    pthread_mutex_unlock(&sim->lock);
}

void sim_driver_set_capturing(struct sim_driver *sim, uint64_t context, bool capturing)
{
    pthread_mutex_lock(&sim->lock);
    sim->is_capturing[context] = capturing;
    pthread_mutex_unlock(&sim->lock);
}

void sim_driver_complete(struct sim_driver *sim, uint64_t context)
{
    pthread_mutex_lock(&sim->lock);
    complete(sim, context);
    pthread_mutex_unlock(&sim->lock);
}

void sim_driver_drop_context(struct sim_driver *sim, uint64_t context)
{
    pthread_mutex_lock(&sim->lock);
    complete(sim, context);
    sim_fence_drop_context(sim, context);
    sim_copy_drop_context(sim, context);
    if (context < SIM_CONTEXTS)
        sim->is_capturing[context] = false; /* its captures go with it */
    for (uint64_t i = sim->allocation_count; i-- > 0;) {
        if (sim->allocations[i].context == context)
            remove_allocation(sim, i);
    }
    pthread_mutex_unlock(&sim->lock);
}

void sim_driver_fail(struct sim_driver *sim, uint64_t n, bool is_permanent, int code)
{
    pthread_mutex_lock(&sim->lock);
    sim->fail_from = n == 0 ? 0 : sim->total_calls + n;
    sim->fail_permanently = is_permanent;
    sim->fail_code = code;
    sim->failed_count = 0;
    pthread_mutex_unlock(&sim->lock);
}

void sim_driver_check(const struct sim_driver *sim)
{
    if (sim->violation_count != 0)
        fail_msg("%llu violations, the first: %s", (unsigned long long)sim->violation_count,
                 sim->violation);
}
