/* The tenants of the program's threads: the tenant that a call is for.
 *
 * A thread may make a tenant current by the API; otherwise GPUCACHE_TENANTS decides by the object
 * that called the outermost entry point. Handles are a number and a place in a table of
 * GC_TENANT_MAX; places are reused, numbers never. A place counts the threads that have its tenant
 * current, and a tenant is removed only when that is 0. */
#ifndef GC_SHIM_TENANT_H
#define GC_SHIM_TENANT_H

#include "core/device/tenant.h"
#include "shim/shim.h"

/* Makes the tenants that GPUCACHE_TENANTS names. Once, at the start. False: some failed; their
 * calls would have no limit. */
bool gc_tenants_start(void) GC_CHECKED;
/* The tenant that this thread's call is for; NULL: none. */
struct gc_tenant *gc_tenants_of_call(void);
/* The tenant whose work a call from `caller` submits; NULL: none. A runtime that several objects
 * share hides its caller: then the rules' last tenant for a call of the thread. */
struct gc_tenant *gc_tenants_of_work(const void *caller);
/* The tenant's quota, charged for the call before the device; NULL: none. GC_NO_HOST_MEMORY. */
enum gc_status gc_tenants_quota(struct gc_device *device, struct gc_quota **quota) GC_CHECKED;
/* The most that a malloc of the call's tenant could get, and its total: see gc_available_mem_info.
 */
void gc_tenants_mem_info(struct gc_device *device, uint64_t *free_bytes, uint64_t *total_bytes);
/* The record that serves a request in `context` (a record of a handle, not of a tenant): that of
 * the calling thread's tenant, or of the tenant whose object called, else `context` itself. NULL:
 * the tenant's record could not be made; the request must fail. */
struct gc_context *gc_tenants_target(struct gc_context *context);
/* The context of the thread, or its tenant, has changed: forgets the thread's target. */
void gc_tenants_reset_target(void);
/* The calling thread ends: releases its tenant. */
void gc_tenants_end_thread(void);

/* ---- for shim/public/public_tenant.c ---- */

/* A handle for the tenant; 0: all places are taken. */
uint64_t gc_tenants_publish(struct gc_tenant *tenant, bool is_by_rule);
/* GC_INVALID_HANDLE. */
enum gc_status gc_tenants_find(uint64_t handle, struct gc_tenant **tenant) GC_CHECKED;
/* The handle of the tenant of that name; 0: there is none. */
uint64_t gc_tenants_find_name(const char *name);
/* Makes the tenant current in the thread; handle 0: no tenant. After GC_INVALID_HANDLE, GC_BUSY
 * (the tenant is being unregistered) or GC_NO_HOST_MEMORY nothing has changed. */
enum gc_status gc_tenants_set_current(uint64_t handle) GC_CHECKED;

/* Revokes the handle from all other threads, before the tenant is removed: GC_BUSY while a thread
 * has the tenant current, GC_NOT_SUPPORTED where a rule made it. gc_tenants_close_end restores the
 * handle or ends it permanently. */
enum gc_status gc_tenants_close_begin(uint64_t handle, struct gc_tenant **tenant) GC_CHECKED;
void gc_tenants_close_end(uint64_t handle, bool is_removed);

#endif
