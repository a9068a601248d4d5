/* A trace file of anyone's making: read, walked and exported as the tool does. */
#include "tools/trace/trace_export.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static trace_export *const exports[] = {trace_export_csv, trace_export_rmm,
                                            trace_export_perfetto, trace_export_pickle,
                                            trace_export_html};
    static int null = -1;
    struct gc_trace_reader reader;
    struct trace_sum sum;
    struct gc_writer out;
    const char *why;
    if (null < 0)
        null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (gc_trace_reader_init(&reader, data, bytes, &why) != GC_OK)
        return 0;
    for (size_t i = 0; i < sizeof(exports) / sizeof(exports[0]); i++) {
        gc_writer_init(&out, null);
        if (exports[i](reader, &out) != GC_OK)
            return 0;
        (void)!gc_writer_flush(&out);
    }
    struct gc_trace_reader names = reader;
    if (trace_walk(&reader, NULL, &sum) != GC_OK)
        return 0;
    if (sum.allocs + sum.frees + sum.ooms + sum.unknown_frees != sum.events ||
        sum.live_count > sum.allocs)
        abort();
    for (unsigned api = 0; api < reader.api_count; api++)
        (void)gc_trace_reader_api_name(&names, (uint16_t)api);
    trace_sum_fini(&sum);
    return 0;
}
