/* The machine's devices as NVML knows them: a ledger's word for a device is its user's. */
#ifndef GC_NODE_DEVICES_H
#define GC_NODE_DEVICES_H

#include "core/ledger/ledger.h"

#include <stdbool.h>

struct nvmlDevice_st;

/* NVML, opened when a device is first asked for, and kept open: its start takes long. */
struct node_devices {
    bool is_tried;
    bool is_open;
    int (*find)(const char *uuid, struct nvmlDevice_st **device);
    int (*name)(struct nvmlDevice_st *device, char *name, unsigned length);
    int (*memory)(struct nvmlDevice_st *device, void *memory);
};

enum node_device_answer {
    NODE_DEVICE_KNOWN,   /* name and total_bytes are NVML's */
    NODE_DEVICE_UNKNOWN, /* the machine has no such device */
    NODE_DEVICE_NO_NVML  /* there is nobody to ask; nothing has changed */
};

/* Asks for the device with device->uuid. */
enum node_device_answer node_devices_check(struct node_devices *devices,
                                           struct gc_ledger_device *device);

#endif
