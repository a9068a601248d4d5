/* Per-thread state, freed when the thread ends. */
#include "tests/simcuda/driver/engine_thread.h"

#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
/* Here and in engine_queue.c: a library that is never unloaded may have thread-locals that cost
 * nothing to find. */
static __thread struct engine_thread *mine __attribute__((tls_model("initial-exec")));

/* The thread's default streams finish what they hold and go. */
static void on_thread_end(void *value)
{
    struct engine_thread *thread = value;

    mine = NULL;
    if (!engine_is_down()) {
        for (size_t i = 0; i < thread->stream_count; i++) {
            struct thread_stream *own = &thread->streams[i];
            if (context_is_live(own->context) && atomic_load(&own->context->id) == own->context_id)
                stream_close(own->stream);
        }
    }
    free(thread->streams);
    free(thread->stack);
    free(thread);
}

static void make_key(void)
{
    pthread_key_create(&key, on_thread_end);
}

struct engine_thread *engine_thread(void)
{
    static atomic_uint_fast64_t last_serial;

    if (!mine) {
        pthread_once(&once, make_key);
        mine = calloc(1, sizeof *mine);
        if (mine) {
            mine->serial = atomic_fetch_add(&last_serial, 1) + 1;
            pthread_setspecific(key, mine);
        }
    }
    return mine;
}
