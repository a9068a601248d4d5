/* The figures that other processes read: see publish.c. */
#ifndef GC_PUBLISH_H
#define GC_PUBLISH_H

#include "core/device/tenant.h"
#include "core/ledger/ledger.h"

/* Writes the device's figures into the process's slot: a few dozen stores. `now_ns` 0: the time of
 * the write before stays. */
void gc_publish_device(struct gc_device *device, uint64_t now_ns);
/* The live and the reserved bytes alone: what the free of direct memory changes. */
void gc_publish_live(struct gc_device *device);
/* Writes a tenant's figures of a device, a row for each pair while rows are free. Does nothing for
 * a record without a tenant. Takes the pools' locks. */
void gc_publish_record(struct gc_context *record);
void gc_publish_tenant(struct gc_tenant *tenant);
/* Frees the rows of a removed tenant. */
void gc_publish_remove_tenant(struct gc_tenant *tenant);
/* Sets the paused flag of the process's row. */
void gc_publish_paused(struct gc_core *core, bool is_paused);
/* The tenant is paused or resumed: sets and publishes its flag. */
void gc_publish_tenant_paused(struct gc_tenant *tenant, bool is_paused);

#endif
