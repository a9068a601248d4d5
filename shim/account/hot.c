/* What a thread has of the library's: its cache, made at the first allocation or free that needs
 * one, its tenant, and captures in its own stream. Handed back when the thread ends, by the
 * destructor of a pthread key: setting it takes no lock, where __cxa_thread_atexit_impl takes the
 * dynamic linker's, which another thread may hold while it waits for this one. The thread that ends
 * the process ends by exit, where everything stays as it is. */
#include "shim/account/hot.h"

#include "shim/account/mempool.h"
#include "shim/account/outside.h"
#include "shim/account/stream_list.h"
#include "shim/account/tenant.h"
#include "shim/intercept/resolve.h"

static pthread_key_t end_key;
static bool has_key;

/* Destructors of other keys may still run and use CUDA: without a cache then. */
static void end_thread(void *unused)
{
    struct gc_cache *cache = gc_thread.cache;

    (void)unused;
    gc_thread.ends_watched = false; /* a destructor may set a tenant again */
    gc_outside_note_thread();
    gc_tenants_end_thread();
    gc_captures_end_thread();
    gc_stream_list_end_thread();
    gc_thread.is_ending = true;
    gc_thread.cache = NULL;
    if (cache != NULL && *gc_shim.hot != 0) /* not in a forked child: its parent's accounts */
        gc_core_cache_retire(gc_shim.core, cache);
}

void gc_hot_start(void)
{
    const struct gc_thread_calls *calls = gc_resolve_thread_calls();

    has_key = calls->key_create != NULL && calls->set_specific != NULL &&
              calls->key_create(&end_key, end_thread) == 0;
}

bool gc_hot_watch_end(void)
{
    /* Any value but NULL: the destructor runs. */
    if (!gc_thread.ends_watched && has_key)
        gc_thread.ends_watched = gc_resolve_thread_calls()->set_specific(end_key, &gc_thread) == 0;
    return gc_thread.ends_watched;
}

void gc_hot_prepare(void)
{
    struct gc_cache *cache;

    if (gc_thread.cache != NULL || gc_thread.is_ending || *gc_shim.hot == 0)
        return;
    cache = gc_core_cache_create(gc_shim.core);
    if (cache == NULL)
        return;
    if (!gc_hot_watch_end()) {
        gc_core_cache_retire(gc_shim.core, cache);
        gc_thread.is_ending = true;
        return;
    }
    gc_thread.cache = cache;
}
