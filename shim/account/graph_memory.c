/* Graph memory: memory nodes and captured stream-ordered allocations take memory when the graph
 * first runs, and the driver keeps it for the next run until it is trimmed.
 *
 * A device's graph memory is charged by the driver's figure of reserved bytes. The figure is read
 * after every call that can change it, and only once the program is known to use such nodes. The
 * account is charged or uncharged by the difference to the last reading. */
#include "shim/account/graph_memory.h"
#include "shim/account/direct.h"
#include "shim/driver/capture_guard.h"
#include "shim/handles.h"
#include "shim/real/resolve.h"

#define DEVICE_COUNT_MAX 64

static struct graph_account {
    struct gc_device *_Atomic device; /* NULL: no graph memory known */
    uint64_t charged;                 /* these two: under the handles' lock */
    uint64_t sequence;
} accounts[DEVICE_COUNT_MAX];
static atomic_bool is_any_expected;

static struct graph_account *account_of(const struct gc_device *device)
{
    if (device == NULL)
        return NULL;
    unsigned ordinal = (unsigned)gc_device_get_info(device)->ordinal;
    return ordinal < DEVICE_COUNT_MAX ? &accounts[ordinal] : NULL;
}

void gc_graph_expect(struct gc_device *device)
{
    struct graph_account *account = account_of(device);

    if (account == NULL)
        return;
    account->device = device;
    is_any_expected = true;
}

static bool read_reserved(const struct gc_device *device, uint64_t *bytes)
{
    struct gc_capture_guard guard;
    cuuint64_t value = 0;

    gc_capture_relax(&guard);
    CUresult result = GC_USE(cuDeviceGetGraphMemAttribute, gc_device_get_info(device)->ordinal,
                             CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value);
    gc_capture_restore(&guard);
    *bytes = value;
    return result == CUDA_SUCCESS;
}

/* The change of the account; reads again if another thread's update came between. */
static int64_t follow(struct graph_account *account, const struct gc_device *device)
{
    int64_t growth = 0;
    bool is_done = false;

    for (int attempt = 0; attempt < 16 && !is_done; attempt++) {
        uint64_t bytes;
        gc_handles_lock();
        uint64_t sequence = account->sequence;
        gc_handles_unlock();
        if (!read_reserved(device, &bytes))
            return 0;
        gc_handles_lock();
        is_done = account->sequence == sequence;
        if (is_done) {
            growth = (int64_t)(bytes - account->charged);
            account->charged = bytes;
            account->sequence++;
        }
        gc_handles_unlock();
    }
    if (growth > 0)
        gc_device_set_used(gc_shim.core);
    return growth;
}

void gc_graph_refresh(struct gc_device *device)
{
    struct graph_account *account = account_of(device);

    if (account != NULL && account->device != NULL)
        gc_direct_adjust(device, follow(account, device));
}

bool gc_graph_is_expected(void)
{
    return atomic_load_explicit(&is_any_expected, memory_order_relaxed);
}

void gc_graph_refresh_all(void)
{
    if (!gc_graph_is_expected())
        return;
    for (int i = 0; i < DEVICE_COUNT_MAX; i++)
        if (accounts[i].device != NULL)
            gc_graph_refresh(accounts[i].device);
}

bool gc_graph_trim(struct gc_device *device)
{
    struct graph_account *account = account_of(device);
    struct gc_capture_guard guard;

    if (account == NULL || account->device == NULL)
        return false;
    gc_capture_relax(&guard);
    (void)GC_CALL(device, cuDeviceGraphMemTrim, gc_device_get_info(device)->ordinal);
    gc_capture_restore(&guard);
    int64_t growth = follow(account, device);
    gc_direct_adjust(device, growth);
    return growth < 0;
}
