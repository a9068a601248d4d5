#include "tools/replay/replay_trace.h"

#include "core/observe/trace_format.h"

#include <string.h>

/* ---- the format ---- */

static bool begins_with(const void *data, size_t bytes, const char *text)
{
    const size_t length = strlen(text);
    return bytes >= length && memcmp(data, text, length) == 0;
}

/* Recognises a pickle by its first opcode: PROTO from protocol 2 on, before that MARK,
 * EMPTY_DICT or EMPTY_LIST. */
bool replay_trace_is_pickle(const void *data)
{
    const unsigned char first = *(const unsigned char *)data;
    return first == 0x80 || first == '(' || first == '}' || first == ']';
}

static enum gc_status read_any(const void *data, size_t bytes, int device,
                               struct replay_builder *builder, struct replay_error *error)
{
    if (bytes == 0)
        return replay_refuse(error, 0, "the file is empty");
    if (begins_with(data, bytes, GC_TRACE_MAGIC))
        return replay_read_native(data, bytes, device, builder, error);
    const bool is_csv = begins_with(data, bytes, REPLAY_CSV_HEADER);
    if ((is_csv || begins_with(data, bytes, REPLAY_RMM_HEADER)) && device >= 0)
        return replay_refuse(error, 0, "has no devices: --device does not apply");
    if (is_csv)
        return replay_read_csv(data, bytes, builder, error);
    if (begins_with(data, bytes, REPLAY_RMM_HEADER))
        return replay_read_rmm(data, bytes, builder, error);
    if (replay_trace_is_pickle(data))
        return replay_read_snapshot(data, bytes, device, builder, error);
    return replay_refuse(
        error, 0,
        "not a trace: neither gpucache's, nor a pickle, nor a CSV that begins with \"" REPLAY_CSV_HEADER
        "\" or \"" REPLAY_RMM_HEADER "\"");
}

enum gc_status replay_trace_read(const void *data, size_t bytes, int device,
                                 struct replay_trace *trace, struct replay_error *error)
{
    struct replay_builder builder;
    *error = (struct replay_error){.line = 0};
    replay_builder_init(&builder, trace);
    enum gc_status status = read_any(data, bytes, device, &builder, error);
    if (status == GC_OK && trace->allocs == 0)
        status = device < 0
                     ? replay_refuse(error, 0, "the trace has no allocation")
                     : replay_refuse(error, 0, "the trace has no allocation of device %d", device);
    if (status == GC_OK)
        status = replay_builder_close(&builder);
    if (status == GC_FORMAT && error->text[0] == '\0')
        status = replay_refuse(error, 0, "the live bytes exceed 64 bits");
    replay_builder_fini(&builder);
    return status;
}
