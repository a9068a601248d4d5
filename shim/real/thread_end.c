#include "shim/real/thread_end.h"
#include "shim/real/resolve.h"

static pthread_key_t end_key;
static bool has_key;

void gc_thread_end_start(void (*end)(void *unused))
{
    const struct gc_thread_calls *calls = gc_resolve_thread_calls();

    has_key = calls->key_create != NULL && calls->set_specific != NULL &&
              calls->key_create(&end_key, end) == 0;
}

bool gc_thread_watch_end(void)
{
    /* Any value but NULL: the destructor runs. */
    if (!gc_thread.ends_watched && has_key)
        gc_thread.ends_watched = gc_resolve_thread_calls()->set_specific(end_key, &gc_thread) == 0;
    return gc_thread.ends_watched;
}
