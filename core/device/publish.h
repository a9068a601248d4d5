/* Figures in the process's slot of the ledger: see publish.c. */
#ifndef GC_PUBLISH_H
#define GC_PUBLISH_H

#include "core/device/tenant.h"
#include "core/ledger/ledger.h"

/* Writes the device's figures into the own slot. A few dozen stores. */
void gc_publish_device(struct gc_device *device, uint64_t now_ns);
/* The same for what a tenant has of the device: a row for each such pair, while there are rows.
 * Does nothing for records of no tenant. Takes the pools' locks. */
void gc_publish_record(struct gc_context *record);
void gc_publish_tenant(struct gc_tenant *tenant);
/* The tenant is gone: so are its rows. */
void gc_publish_remove_tenant(struct gc_tenant *tenant);
/* Shown in the process's row. */
void gc_publish_paused(struct gc_core *core, bool is_paused);
/* Row `index` of the tenants inside the process; NULL takes it away. */
void gc_publish_tenant_row(struct gc_core *core, uint32_t index,
                           const struct gc_ledger_tenant *tenant);
/* What came of it. */
void gc_tenant_set_paused(struct gc_tenant *tenant, bool is_paused);

#endif
