/* The content of memory of the simulated platform: only bytes that were filled or written are kept.
 * By address, so for memory whose pages are not remapped; whole pages are sim_mapping.c's. */
#include "tests/unit/sim_driver.h"

#include <stdlib.h>
#include <string.h>

static uint8_t *find_chunk(struct sim_driver *sim, uint64_t address)
{
    const uint64_t base = address / SIM_CHUNK_BYTES * SIM_CHUNK_BYTES;
    for (uint64_t i = 0; i < sim->chunk_count; i++) {
        if (sim->chunks[i].address == base)
            return sim->chunks[i].bytes;
    }
    return NULL;
}

static uint8_t *make_chunk(struct sim_driver *sim, uint64_t address)
{
    uint8_t *found = find_chunk(sim, address);
    if (found != NULL)
        return found;
    if (sim->chunk_count == sim->chunk_room) {
        sim->chunk_room = sim->chunk_room * 2 + 64;
        sim->chunks = realloc(sim->chunks, sim->chunk_room * sizeof(*sim->chunks));
    }
    struct sim_chunk *made = &sim->chunks[sim->chunk_count++];
    made->address = address / SIM_CHUNK_BYTES * SIM_CHUNK_BYTES;
    made->bytes = calloc(1, SIM_CHUNK_BYTES);
    return made->bytes;
}

static void write_locked(struct sim_driver *sim, uint64_t address, uint64_t bytes, uint8_t value)
{
    for (uint64_t i = 0; i < bytes; i++)
        make_chunk(sim, address + i)[(address + i) % SIM_CHUNK_BYTES] = value;
}

static uint8_t peek_locked(struct sim_driver *sim, uint64_t address)
{
    const uint8_t *chunk = find_chunk(sim, address);
    return chunk == NULL ? 0 : chunk[address % SIM_CHUNK_BYTES];
}

/* Whether an allocation or mapping holds all of the range. */
static bool is_there(const struct sim_driver *sim, uint64_t address, uint64_t bytes)
{
    if (sim_mapping_is_reserved(sim, address))
        return sim_mapping_is_open(sim, address, bytes, -1);
    for (uint64_t i = 0; i < sim->allocation_count; i++) {
        const struct sim_allocation *found = &sim->allocations[i];
        if (address >= found->address && address + bytes <= found->address + found->bytes)
            return true;
    }
    return false;
}

static int begin(struct sim_driver *sim, enum sim_call call, uint64_t context, uint64_t address,
                 uint64_t bytes)
{
    const int injected = sim_driver_begin(sim, call, context);
    if (injected != 0)
        return injected;
    if (context < SIM_CONTEXTS && sim->is_capturing[context])
        sim_driver_violate(sim, "memory looked at or filled during a capture", address);
    if (!is_there(sim, address, bytes))
        sim_driver_violate(sim, "memory looked at or filled that is not there", address);
    return 0;
}

static int fill(void *self, uint64_t context, uint64_t address, uint64_t bytes, uint8_t value)
{
    struct sim_driver *sim = self;
    const int injected = begin(sim, SIM_FILL, context, address, bytes);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    if (sim_driver_is_used(sim, address, bytes))
        sim_driver_violate(sim, "memory filled while work uses it", address);
    write_locked(sim, address, bytes, value);
    return sim_driver_end(sim, 0);
}

static int read_memory(void *self, uint64_t context, uint64_t address, uint64_t bytes, void *to)
{
    struct sim_driver *sim = self;
    const int injected = begin(sim, SIM_READ, context, address, bytes);
    if (injected != 0)
        return sim_driver_end(sim, injected);
    if (!sim_mapping_copy_out(sim, address, bytes, to)) {
        for (uint64_t i = 0; i < bytes; i++)
            ((uint8_t *)to)[i] = peek_locked(sim, address + i);
    }
    return sim_driver_end(sim, 0);
}

void sim_driver_write(struct sim_driver *sim, uint64_t address, uint64_t bytes, uint8_t value)
{
    pthread_mutex_lock(&sim->lock);
    write_locked(sim, address, bytes, value);
    pthread_mutex_unlock(&sim->lock);
}

uint8_t sim_driver_peek(struct sim_driver *sim, uint64_t address)
{
    pthread_mutex_lock(&sim->lock);
    const uint8_t value = peek_locked(sim, address);
    pthread_mutex_unlock(&sim->lock);
    return value;
}

void sim_content_init(struct sim_driver *sim)
{
    sim->table.fill = fill;
    sim->table.read = read_memory;
}

void sim_content_fini(struct sim_driver *sim)
{
    for (uint64_t i = 0; i < sim->chunk_count; i++)
        free(sim->chunks[i].bytes);
    free(sim->chunks);
}
