/* A trace of any format and of anyone's making: read into events, which must agree with each other.
 */
#include "tools/replay/replay_trace.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Each slot is taken, then left; nothing is live behind the closing frees. */
static void check(const struct replay_trace *trace)
{
    uint64_t *live = calloc((size_t)trace->slot_count + 1, sizeof(*live));
    uint64_t live_bytes = 0;
    uint64_t peak = 0;
    if (live == NULL)
        return;
    for (size_t i = 0; i < trace->count; i++) {
        const struct replay_event *event = &trace->events[i];
        if (event->slot >= trace->slot_count || (event->bytes > 0) != (live[event->slot] == 0))
            abort();
        live_bytes += event->bytes - live[event->slot];
        live[event->slot] = event->bytes;
        if (live_bytes > peak)
            peak = live_bytes;
    }
    if (live_bytes != 0 || peak != trace->peak_live_bytes || trace->closing > trace->count)
        abort();
    free(live);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct replay_error error;
    struct replay_trace trace;
    const enum gc_status status = replay_trace_read(data, bytes, -1, &trace, &error);
    if (status == GC_OK)
        check(&trace);
    if (status == GC_FORMAT && error.text[0] == '\0')
        abort();
    replay_trace_fini(&trace);
    return 0;
}
