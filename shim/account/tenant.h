/* Tenants, as the program's threads have them: which one a call is for.
 *
 * A thread may make one current by the API; else GPUCACHE_TENANTS decides by the object that called
 * the outermost entry point. Handles are a number and a place in a table of GC_TENANT_MAX; places
 * serve again, numbers never. A place knows how many threads have its tenant current, and a tenant
 * goes only where none has. */
#ifndef GC_SHIM_TENANT_H
#define GC_SHIM_TENANT_H

#include "core/device/tenant.h"
#include "shim/shim.h"

/* Makes the tenants that GPUCACHE_TENANTS names. Once, at the start. False: not all of them; what
 * follows would be limited by nothing. */
bool gc_tenants_start(void) GC_CHECKED;
/* Whom the call of this thread that is under way is for; NULL: nobody. */
struct gc_tenant *gc_tenants_of_call(void);
/* The tenant whose work a call from `caller` submits; NULL: none. A runtime that several objects
 * share hides its caller: then it is the tenant, by the rules, of the thread's last allocation. */
struct gc_tenant *gc_tenants_of_work(const void *caller);
/* The account that is charged for the call, before the device; NULL: none. GC_NO_HOST_MEMORY. */
enum gc_status gc_tenants_quota(struct gc_device *device, struct gc_quota **quota) GC_CHECKED;
/* The most that a malloc of the call's tenant could get, and its total: see gc_core_mem_info. */
void gc_tenants_mem_info(struct gc_device *device, uint64_t *free_bytes, uint64_t *total_bytes);
/* The record that serves a request in `context` (a record of a handle, not of a tenant): that of
 * the calling thread's tenant, or of the tenant whose object called, else `context` itself. NULL:
 * the tenant's record could not be made; the request must fail. */
struct gc_context *gc_shim_target(struct gc_context *context);
/* The context of the thread, or its tenant, has changed: where its allocations go is to be asked.
 */
void gc_tenants_reset_target(void);
/* The calling thread ends: it lets its tenant go. */
void gc_tenants_end_thread(void);

/* ---- for public_tenant.c ---- */

/* A handle for the tenant; 0: all places are taken. */
uint64_t gc_tenants_publish(struct gc_tenant *tenant, bool is_by_rule);
/* GC_INVALID_HANDLE. */
enum gc_status gc_tenants_find(uint64_t handle, struct gc_tenant **tenant) GC_CHECKED;
/* 0: there is none of that name. */
uint64_t gc_tenants_find_name(const char *name);
/* GC_INVALID_HANDLE; GC_BUSY: it is being unregistered; GC_NO_HOST_MEMORY. Nothing changes then. 0:
 * none. */
enum gc_status gc_tenants_set_current(uint64_t handle) GC_CHECKED;

/* Revokes the handle from all other threads, before the tenant is removed: GC_BUSY while a thread
 * has the tenant current, GC_NOT_SUPPORTED where a rule made it. close_end restores the handle, or
 * ends it permanently. */
enum gc_status gc_tenants_close_begin(uint64_t handle, struct gc_tenant **tenant) GC_CHECKED;
void gc_tenants_close_end(uint64_t handle, bool is_removed);

#endif
