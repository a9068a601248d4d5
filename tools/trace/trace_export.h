/* Converters of a native trace. Each walks a copy of the reader. A failed write is recorded in
 * `out`; other failures are GC_NO_HOST_MEMORY.
 *
 * CSV: op,id,bytes,stream,time_us
 * RMM: the log of RMM's logging_resource_adaptor, for its replay benchmark
 * Perfetto: Chrome's trace event JSON: counters of each device, a slice for each allocation
 * HTML: the report's page, of the trace alone
 * pickle: a PyTorch memory snapshot, protocol 2, with the opcodes that its viewer knows */
#ifndef GC_TRACE_EXPORT_H
#define GC_TRACE_EXPORT_H

#include "core/io/writer.h"
#include "tools/trace/trace_walk.h"

typedef enum gc_status trace_export(struct gc_trace_reader reader, struct gc_writer *out);

trace_export trace_export_csv;
trace_export trace_export_rmm;
trace_export trace_export_perfetto;
trace_export trace_export_pickle;
trace_export trace_export_html;
trace_export trace_export_named_html; /* frames have the names and lines of the files */

/* The names of a trace's entry points by number, for inner loops. The caller frees the array; NULL
 * if memory runs out. */
const char **trace_api_names(const struct gc_trace_reader *reader);

#endif
