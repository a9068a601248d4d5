/* A PyTorch memory snapshot: the allocation history of one device.
 *
 * root["device_traces"] has a list of events for each device: {action, addr, size, stream, …}. The
 * program's free is free_requested. free_completed follows when PyTorch's own streams are done, and
 * counts as the free if the history lost the request. The history may begin late, as a ring does:
 * frees of unseen allocations are left out and counted.
 *
 * A pickle can hold one value at many places, but only one list is read, once: there are at most as
 * many events as the file has bytes, and each has few keys. */
#include "tools/pickle/pickle.h"
#include "tools/replay/replay_trace.h"

#define EVENT_KEYS_MAX 64

struct snapshot {
    struct replay_builder *builder;
    struct replay_error *error;
};

/* A non-negative number of the event. */
static bool read_uint(const struct pickle_value *event, const char *key, uint64_t *number)
{
    const struct pickle_value *value = pickle_find(event, key);
    if (value == NULL || value->kind != PICKLE_INT || value->integer < 0)
        return false;
    *number = (uint64_t)value->integer;
    return true;
}

static enum gc_status fail_event(const struct snapshot *snapshot, size_t index, const char *what)
{
    return replay_refuse(snapshot->error, 0, "event %zu of the snapshot's history %s", index, what);
}

static enum gc_status read_free(struct replay_builder *builder, const struct pickle_value *action,
                                uint64_t address, uint64_t stream)
{
    /* A free_completed after its free_requested adds nothing. */
    if (pickle_is_text(action, "free_completed") && !replay_builder_is_live(builder, address))
        return GC_OK;
    return replay_builder_free(builder, address, stream);
}

static enum gc_status read_event(struct snapshot *snapshot, const struct pickle_value *event,
                                 size_t index)
{
    struct replay_builder *builder = snapshot->builder;
    const struct pickle_value *action;
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint64_t stream = 0;
    if (event->kind != PICKLE_DICT || event->items->count > 2 * (size_t)EVENT_KEYS_MAX)
        return fail_event(snapshot, index, "is not a dictionary of a few keys");
    action = pickle_find(event, "action");
    if (action == NULL || action->kind != PICKLE_TEXT)
        return fail_event(snapshot, index, "has no action");
    const bool is_alloc = pickle_is_text(action, "alloc");
    if (!is_alloc && !pickle_is_text(action, "free_requested") &&
        !pickle_is_text(action, "free_completed")) {
        builder->trace->left_out++;
        return GC_OK;
    }
    if (!read_uint(event, "addr", &address))
        return fail_event(snapshot, index, "has no valid addr");
    if (pickle_find(event, "stream") != NULL && !read_uint(event, "stream", &stream))
        return fail_event(snapshot, index, "has an invalid stream");
    if (!is_alloc)
        return read_free(builder, action, address, stream);
    if (!read_uint(event, "size", &bytes))
        return fail_event(snapshot, index, "has no size");
    if (bytes > 0)
        return replay_builder_alloc(builder, address, bytes, stream);
    builder->trace->left_out++;
    return GC_OK;
}

static enum gc_status read_history(struct snapshot *snapshot, const struct pickle_value *history)
{
    const struct pickle_items *events = history->items;
    for (size_t i = 0; i < events->count; i++) {
        const enum gc_status status = read_event(snapshot, &events->values[i], i);
        if (status != GC_OK)
            return status;
    }
    return GC_OK;
}

/* The device with the most events, the lowest of equals; -1: no events. */
static int busiest_device(const struct pickle_items *devices)
{
    size_t most = 0;
    int busiest = -1;
    for (size_t i = 0; i < devices->count && i < 256; i++) {
        if (devices->values[i].kind == PICKLE_LIST && devices->values[i].items->count > most) {
            most = devices->values[i].items->count;
            busiest = (int)i;
        }
    }
    return busiest;
}

static enum gc_status read_device(struct snapshot *snapshot, const struct pickle_value *root,
                                  int device)
{
    const struct pickle_value *devices = pickle_find(root, "device_traces");
    if (devices == NULL || devices->kind != PICKLE_LIST)
        return replay_refuse(
            snapshot->error, 0,
            "the pickle is not a PyTorch memory snapshot: it has no device_traces");
    const int chosen = device >= 0 ? device : busiest_device(devices->items);
    if (chosen < 0)
        return replay_refuse(
            snapshot->error, 0,
            "the snapshot has no history; torch.cuda.memory._record_memory_history() starts its "
            "recording");
    if ((size_t)chosen >= devices->items->count)
        return replay_refuse(snapshot->error, 0, "the snapshot has %zu devices, numbered from 0",
                             devices->items->count);
    const struct pickle_value *history = &devices->items->values[chosen];
    if (history->kind != PICKLE_LIST)
        return replay_refuse(snapshot->error, 0,
                             "the snapshot's history of device %d is not a list", chosen);
    snapshot->builder->trace->device = chosen;
    return read_history(snapshot, history);
}

enum gc_status replay_read_snapshot(const void *data, size_t bytes, int device,
                                    struct replay_builder *builder, struct replay_error *error)
{
    struct snapshot snapshot = {.builder = builder, .error = error};
    struct pickle_error why;
    struct pickle pickle;
    builder->trace->format = "PyTorch snapshot";
    enum gc_status status = pickle_load(data, bytes, &pickle, &why);
    if (status == GC_FORMAT)
        status = replay_refuse(error, 0, "byte %zu of the pickle: %s", why.offset, why.text);
    if (status == GC_OK)
        status = read_device(&snapshot, &pickle.root, device);
    pickle_fini(&pickle);
    return status;
}
