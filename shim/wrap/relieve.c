/* Memory for the driver's own needs: see relieve.h. */
#include "shim/wrap/relieve.h"
#include "shim/account/device.h"
#include "shim/account/direct.h"

/* Attempts after the first call: idle memory, then all of it, then pending memory. Other threads
 * may take each first. */
#define ATTEMPTS_MAX 3

/* ---- which calls may be made again: shim/once.def ---- */

enum kind {
    KIND_ALLOC,
    KIND_FREE,
    KIND_QUERY,
    KIND_SUBMIT,
    KIND_SYNC,
    KIND_CAPTURE,
    KIND_CONTEXT,
    KIND_IPC,
    KIND_PEER,
    KIND_INIT,
    KIND_NODE,
    KIND_PASS,
    KIND_COUNT
};

static const bool is_once_kind[KIND_COUNT] = {
#define ONCE_KIND(kind) [KIND_##kind] = true,
#include "shim/once.def"
};

static const bool is_once[GC_API_COUNT] = {
#define ONCE(symbol) [GC_API_##symbol] = true,
#include "shim/once.def"
};

static const uint8_t kinds[GC_API_COUNT] = {
#define API(symbol, base, version, variant, kind, parameters, arguments)                           \
    [GC_API_##symbol] = KIND_##kind,
#include "shim/api.def"
};

/* Whether the call is a request for memory, which waits for pending memory as the pool's requests
 * do. Any other call waits shortly: its program may hold what the pending work waits for. */
static bool is_request(enum gc_api api, uint64_t bytes)
{
    return kinds[api] == KIND_ALLOC || bytes != 0;
}

static bool may_repeat(enum gc_api api)
{
    return !is_once[api] && !is_once_kind[kinds[api]];
}

/* ---- relief ---- */

bool gc_relieve(struct gc_device *device, enum gc_api api, uint64_t bytes, unsigned attempt)
{
    if (attempt >= ATTEMPTS_MAX || !may_repeat(api) || gc_shim_life() != GC_LIFE_READY)
        return false;
    gc_shim_enter(GC_API_COUNT); /* calls that come back pass straight through */
    if (device == NULL)
        device = gc_account_current_device();
    const bool is_relieved =
        device != NULL &&
        gc_direct_reclaim_all(device, bytes == 0 || attempt > 0 ? UINT64_MAX : bytes,
                              is_request(api, bytes));
    gc_shim_leave();
    return is_relieved;
}

bool gc_relieve_outside(enum gc_api api, unsigned attempt)
{
    return gc_thread.depth == 0 && gc_relieve(NULL, api, 0, attempt);
}
