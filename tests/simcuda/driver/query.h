/* The simulated driver's figures of its devices for other parts (NVML's stand-in, tests), outside
 * the CUDA API: no initialisation needed, nothing counted or journalled. libcuda.so.1 exports it.
 */
#ifndef SIM_QUERY_H
#define SIM_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int simcuda_device_count(void);
int simcuda_driver_version(void);
/* False if there is no such device. */
bool simcuda_device_memory(int ordinal, uint64_t *used, uint64_t *total);
bool simcuda_device_uuid(int ordinal, unsigned char uuid[16]);
bool simcuda_device_name(int ordinal, char *name, size_t bytes);
/* As cuDeviceGetAttribute; -1 where that refuses. */
int simcuda_device_attribute(int ordinal, int attribute);
/* Processes that hold memory of the device: fills up to `room` of both arrays and returns how many
 * there are. */
unsigned simcuda_device_processes(int ordinal, unsigned room, unsigned *pids, uint64_t *used);

#endif
