/* Two threads may see a new stack at once: only one of them writes it, and the other's allocation
 * may be in the file before it. A reader therefore reads all stacks first. */
#include "core/observe/trace_stacks.h"

#include "core/observe/trace_format.h"

#include <string.h>

static void record_bytes(struct gc_trace *trace, struct gc_trace_event *event,
                         const unsigned char bytes[GC_TRACE_PAYLOAD_BYTES])
{
    memcpy(&event->address, bytes, sizeof(event->address));
    memcpy(&event->bytes, bytes + 8, sizeof(event->bytes));
    memcpy(&event->stream, bytes + 16, sizeof(event->stream));
    gc_trace_record(trace, event);
}

/* The NUL is part of the text: a text without one was cut off. */
static void record_text(struct gc_trace *trace, uint32_t number, const char *text, uint64_t time_ns)
{
    const size_t length = strlen(text) + 1;
    for (size_t at = 0; at < length; at += GC_TRACE_PAYLOAD_BYTES) {
        unsigned char bytes[GC_TRACE_PAYLOAD_BYTES] = {0};
        struct gc_trace_event event = {
            .op = GC_TRACE_TEXT, .api = (uint16_t)at, .thread = number, .time_ns = time_ns};
        const size_t rest = length - at;
        memcpy(bytes, text + at, rest < sizeof(bytes) ? rest : sizeof(bytes));
        record_bytes(trace, &event, bytes);
    }
}

static void record_stack(struct gc_trace *trace, struct gc_stack_table *stacks, uint32_t stack,
                         uint64_t time_ns)
{
    uint32_t texts[GC_STACK_FRAMES_MAX];
    char text[GC_STACK_TEXT_BYTES];
    const uint32_t count = gc_stacks_texts(stacks, stack, texts);
    for (uint32_t i = 0; i < count; i++) {
        if (gc_stacks_text(stacks, texts[i], text))
            record_text(trace, texts[i], text, time_ns);
    }
    for (uint32_t i = 0; i < count; i += GC_TRACE_PAYLOAD_FRAMES) {
        uint32_t frames[GC_TRACE_PAYLOAD_FRAMES] = {0};
        unsigned char bytes[GC_TRACE_PAYLOAD_BYTES];
        struct gc_trace_event event = {
            .op = GC_TRACE_FRAMES, .api = (uint16_t)i, .thread = stack, .time_ns = time_ns};
        for (uint32_t j = 0; j < GC_TRACE_PAYLOAD_FRAMES && i + j < count; j++)
            frames[j] = texts[i + j];
        memcpy(bytes, frames, sizeof(bytes));
        record_bytes(trace, &event, bytes);
    }
}

void gc_trace_stacks_record(struct gc_trace *trace, struct gc_stack_table *stacks, uint32_t stack,
                            uint8_t device, uint64_t address, uint64_t time_ns)
{
    if (trace == NULL || stack == GC_STACK_NONE)
        return;
    gc_trace_set_stacks(trace);
    if (gc_stacks_is_new(stacks, stack))
        record_stack(trace, stacks, stack, time_ns);
    const struct gc_trace_event event = {.op = GC_TRACE_STACK,
                                         .device = device,
                                         .address = address,
                                         .bytes = stack,
                                         .time_ns = time_ns};
    gc_trace_record(trace, &event);
}
