/* The engine's state of a thread. */
#ifndef SIM_ENGINE_THREAD_H
#define SIM_ENGINE_THREAD_H

#include "tests/simcuda/driver/engine.h"

struct engine_thread {
    struct sim_context **stack; /* current contexts, the last one on top */
    size_t depth, capacity;
    struct thread_stream { /* the thread's own default stream in each context it used one in */
        struct sim_context *context;
        uint64_t context_id;
        struct sim_stream *stream;
    } * streams;
    size_t stream_count, stream_capacity;
    CUstreamCaptureMode capture_mode;
    uint64_t serial; /* no other thread ever has it */
};

/* The calling thread's; NULL without memory. Gone at the thread's end, with its streams. */
struct engine_thread *engine_thread(void);

#endif
