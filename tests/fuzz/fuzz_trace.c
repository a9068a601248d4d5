/* A trace file of anyone's making: read, and walked as the tool does. */
#include "tools/trace_walk.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static int null = -1;
    struct gc_trace_reader reader;
    struct trace_sum sum;
    struct gc_out csv;
    const char *why;
    if (null < 0)
        null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (gc_trace_reader_init(&reader, data, bytes, &why) != GC_OK)
        return 0;
    gc_out_init(&csv, null);
    if (trace_walk(&reader, &csv, &sum) != GC_OK)
        return 0;
    if (sum.allocs + sum.frees + sum.ooms + sum.unknown_frees != sum.events ||
        sum.live_count > sum.allocs)
        abort();
    for (unsigned api = 0; api < reader.api_count; api++)
        (void)gc_trace_reader_api_name(&reader, (uint16_t)api);
    trace_sum_fini(&sum);
    (void)!gc_out_flush(&csv);
    return 0;
}
