/* The figures behind query.h: settings and the capacity accounts, nothing else. */
#include "tests/simcuda/driver/query.h"

#include <string.h>

#include "tests/simcuda/sim.h"

#define QUERY_EXPORT __attribute__((visibility("default")))

QUERY_EXPORT int simcuda_device_count(void)
{
    return sim_settings()->device_count;
}

QUERY_EXPORT int simcuda_driver_version(void)
{
    return sim_settings()->driver_version;
}

QUERY_EXPORT bool simcuda_device_memory(int ordinal, uint64_t *used, uint64_t *total)
{
    struct sim_device *device = sim_device(ordinal);

    if (!device)
        return false;
    *used = sim_capacity_used(device);
    *total = sim_settings()->memory_bytes;
    return true;
}

QUERY_EXPORT bool simcuda_device_uuid(int ordinal, unsigned char uuid[16])
{
    const struct sim_device *device = sim_device(ordinal);

    if (!device)
        return false;
    memcpy(uuid, device->uuid.bytes, sizeof(device->uuid.bytes));
    return true;
}

QUERY_EXPORT bool simcuda_device_name(int ordinal, char *name, size_t bytes)
{
    const struct sim_device *device = sim_device(ordinal);

    if (!device || bytes == 0)
        return false;
    strncpy(name, device->name, bytes - 1);
    name[bytes - 1] = '\0';
    return true;
}

QUERY_EXPORT unsigned simcuda_device_processes(int ordinal, unsigned room, unsigned *pids,
                                               uint64_t *used)
{
    struct sim_device *device = sim_device(ordinal);

    return device ? sim_capacity_holders(device, room, pids, used) : 0;
}
