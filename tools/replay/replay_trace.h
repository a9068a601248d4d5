/* Traces read into events, by their format: native, CSV, RMM's log, a PyTorch snapshot. */
#ifndef GC_REPLAY_TRACE_H
#define GC_REPLAY_TRACE_H

#include "tools/replay/replay_builder.h"

/* True if the data begins with the first opcode of a pickle. */
bool replay_trace_is_pickle(const void *data);
/* Reads `data`; its content decides the format. `device`: the device to read, -1 for the one
 * with the most events. GC_FORMAT with *error; GC_NO_HOST_MEMORY. */
enum gc_status replay_trace_read(const void *data, size_t bytes, int device,
                                 struct replay_trace *trace, struct replay_error *error) GC_CHECKED;

/* ---- the formats ---- */

#define REPLAY_CSV_HEADER "op,id,bytes,stream,time_us"
#define REPLAY_RMM_HEADER "Thread,Time,Action,Pointer,Size,Stream"

enum gc_status replay_read_csv(const char *text, size_t bytes, struct replay_builder *builder,
                               struct replay_error *error) GC_CHECKED;
enum gc_status replay_read_rmm(const char *text, size_t bytes, struct replay_builder *builder,
                               struct replay_error *error) GC_CHECKED;
enum gc_status replay_read_native(const void *data, size_t bytes, int device,
                                  struct replay_builder *builder,
                                  struct replay_error *error) GC_CHECKED;

enum gc_status replay_read_snapshot(const void *data, size_t bytes, int device,
                                    struct replay_builder *builder,
                                    struct replay_error *error) GC_CHECKED;

#endif
