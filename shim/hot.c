/* The cache of a thread: made at the thread's first allocation or free that needs one, handed back
 * when the thread ends. */
#include "shim/hot.h"

/* Of libc since 2.18; what C++ uses for thread-local objects. */
extern int __cxa_thread_atexit_impl(void (*function)(void *argument), void *argument, void *object);
extern void *__dso_handle __attribute__((visibility("hidden")));

/* Other functions of this kind may still run and use CUDA: without a cache then. */
static void end_thread(void *argument)
{
    struct gc_cache *cache = gc_thread.cache;

    (void)argument;
    gc_thread.is_ending = true;
    gc_thread.cache = NULL;
    if (cache != NULL && *gc_shim.hot != 0) /* not in a forked child: its parent's accounts */
        gc_core_cache_retire(gc_shim.core, cache);
}

void gc_hot_prepare(void)
{
    struct gc_cache *cache;

    if (gc_thread.cache != NULL || gc_thread.is_ending || *gc_shim.hot == 0)
        return;
    cache = gc_core_cache_create(gc_shim.core);
    if (cache == NULL)
        return;
    if (__cxa_thread_atexit_impl(end_thread, NULL, &__dso_handle) != 0) {
        gc_core_cache_retire(gc_shim.core, cache);
        gc_thread.is_ending = true;
        return;
    }
    gc_thread.cache = cache;
}
