/* Pinned host memory, and copies that are started and waited for, of the simulated platform. */
#include "tests/unit/sim_driver.h"

#include <stdlib.h>
#include <string.h>

static bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

static uint64_t number_of(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

bool sim_copy_is_of(const struct sim_driver *sim, uint64_t address, uint64_t bytes)
{
    for (uint64_t i = 0; i < sim->copy_count; i++)
        if (overlap(sim->copies[i].address, sim->copies[i].bytes, address, bytes) ||
            overlap(sim->copies[i].to, sim->copies[i].bytes, address, bytes))
            return true;
    return false;
}

static bool is_of_host(const struct sim_driver *sim, const struct sim_pin *pin)
{
    for (uint64_t i = 0; i < sim->copy_count; i++)
        if (overlap(sim->copies[i].host, sim->copies[i].bytes, pin->memory, pin->bytes))
            return true;
    return false;
}

static bool is_pinned(const struct sim_driver *sim, uint64_t memory, uint64_t bytes)
{
    for (uint64_t i = 0; i < sim->pin_count; i++)
        if (memory >= sim->pins[i].memory &&
            memory + bytes <= sim->pins[i].memory + sim->pins[i].bytes)
            return true;
    return false;
}

static int host_pin(void *self, uint64_t context, void *memory, uint64_t bytes)
{
    struct sim_driver *sim = self;
    const int injected = sim_driver_begin(sim, SIM_HOST_PIN, context);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    for (uint64_t i = 0; i < sim->pin_count; i++)
        if (overlap(sim->pins[i].memory, sim->pins[i].bytes, number_of(memory), bytes))
            sim_driver_violate(sim, "host memory pinned twice", number_of(memory));
    if (sim->pin_count == sim->pin_room) {
        sim->pin_room = sim->pin_room * 2 + 64;
        sim->pins = realloc(sim->pins, sim->pin_room * sizeof(*sim->pins));
    }
    sim->pins[sim->pin_count++] = (struct sim_pin){number_of(memory), bytes, context};
    sim->pinned_bytes += bytes;
    return sim_driver_end(sim, 0);
}

static void remove_pin(struct sim_driver *sim, uint64_t i)
{
    sim->pinned_bytes -= sim->pins[i].bytes;
    sim->pins[i] = sim->pins[--sim->pin_count];
}

static int host_unpin(void *self, uint64_t context, void *memory)
{
    struct sim_driver *sim = self;
    const int injected = sim_driver_begin(sim, SIM_HOST_UNPIN, context);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    for (uint64_t i = 0; i < sim->pin_count; i++) {
        if (sim->pins[i].memory != number_of(memory))
            continue;
        if (is_of_host(sim, &sim->pins[i]))
            sim_driver_violate(sim, "host memory unpinned during a copy", number_of(memory));
        remove_pin(sim, i);
        return sim_driver_end(sim, 0);
    }
    sim_driver_violate(sim, "host memory unpinned that is not pinned", number_of(memory));
    return sim_driver_end(sim, 1);
}

static int start(struct sim_driver *sim, enum sim_call call, const struct sim_copy *copy)
{
    const int injected = sim_driver_begin(sim, call, copy->context);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    if (copy->context < SIM_CONTEXTS && sim->is_capturing[copy->context])
        sim_driver_violate(sim, "a copy during a capture", copy->address);
    if (sim_driver_is_used(sim, copy->address, copy->bytes))
        sim_driver_violate(sim, "a copy while work uses the memory", copy->address);
    if (sim->copy_count == sim->copy_room) {
        sim->copy_room = sim->copy_room * 2 + 64;
        sim->copies = realloc(sim->copies, sim->copy_room * sizeof(*sim->copies));
    }
    sim->copies[sim->copy_count++] = *copy;
    return sim_driver_end(sim, 0);
}

static int copy_out(void *self, uint64_t context, uint64_t address, uint64_t bytes, void *to)
{
    const struct sim_copy copy = {address, bytes, number_of(to), 0, context, true};
    return start(self, SIM_COPY_OUT, &copy);
}

static int copy_in(void *self, uint64_t context, uint64_t address, uint64_t bytes, const void *from)
{
    const struct sim_copy copy = {address, bytes, number_of(from), 0, context, false};
    return start(self, SIM_COPY_IN, &copy);
}

static int copy_across(void *self, uint64_t context, uint64_t from, uint64_t to, uint64_t bytes)
{
    const struct sim_copy copy = {from, bytes, 0, to, context, true};
    return start(self, SIM_COPY_ACROSS, &copy);
}

static void finish_across(struct sim_driver *sim, const struct sim_copy *copy)
{
    void *buffer = malloc(copy->bytes);
    if (!sim_mapping_copy_out(sim, copy->address, copy->bytes, buffer) ||
        !sim_mapping_copy_in(sim, copy->to, copy->bytes, buffer))
        sim_driver_violate(sim, "a copy of what is not mapped", copy->address);
    free(buffer);
}

static void finish(struct sim_driver *sim, const struct sim_copy *copy)
{
    void *host = (void *)(uintptr_t)copy->host;
    if (copy->to != 0) {
        finish_across(sim, copy);
        return;
    }
    if (!(copy->is_out ? sim_mapping_copy_out(sim, copy->address, copy->bytes, host)
                       : sim_mapping_copy_in(sim, copy->address, copy->bytes, host)))
        sim_driver_violate(sim, "a copy of what is not mapped", copy->address);
    *(copy->is_out ? &sim->copied_out_bytes : &sim->copied_in_bytes) += copy->bytes;
    if (!is_pinned(sim, copy->host, copy->bytes))
        sim->pageable_bytes += copy->bytes;
}

/* The copy ended with an error: what it wrote is undefined. */
static void spoil(struct sim_driver *sim, const struct sim_copy *copy)
{
    void *host = (void *)(uintptr_t)copy->host;
    const bool is_to_host = copy->is_out && copy->to == 0;
    void *junk = is_to_host ? host : malloc(copy->bytes);
    memset(junk, 0xee, copy->bytes);
    if (is_to_host)
        return;
    (void)sim_mapping_copy_in(sim, copy->to != 0 ? copy->to : copy->address, copy->bytes, junk);
    free(junk);
}

static int copy_wait(void *self, uint64_t context, bool is_out)
{
    struct sim_driver *sim = self;
    uint64_t kept = 0;
    const int injected = sim_driver_begin(sim, SIM_COPY_WAIT, context);
    for (uint64_t i = 0; i < sim->copy_count; i++) {
        if (sim->copies[i].context != context || sim->copies[i].is_out != is_out)
            sim->copies[kept++] = sim->copies[i];
        else if (injected != 0)
            spoil(sim, &sim->copies[i]);
        else
            finish(sim, &sim->copies[i]);
    }
    sim->copy_count = kept;
    return sim_driver_end(sim, injected);
}

void sim_copy_drop_context(struct sim_driver *sim, uint64_t context)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < sim->copy_count; i++)
        if (sim->copies[i].context != context)
            sim->copies[kept++] = sim->copies[i];
    sim->copy_count = kept;
    for (uint64_t i = sim->pin_count; i-- > 0;)
        if (sim->pins[i].context == context)
            remove_pin(sim, i);
}

void sim_copy_init(struct sim_driver *sim)
{
    sim->table.host_pin = host_pin;
    sim->table.host_unpin = host_unpin;
    sim->table.copy_out = copy_out;
    sim->table.copy_in = copy_in;
    sim->table.copy_across = copy_across;
    sim->table.copy_wait = copy_wait;
}

void sim_copy_fini(struct sim_driver *sim)
{
    free(sim->pins);
    free(sim->copies);
}
