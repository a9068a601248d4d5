/* Libraries that are loaded with RTLD_DEEPBIND find CUDA's functions, and dlsym itself, in their
 * own dependencies before any preloaded library: their calls are not cached, counted or limited.
 * Nothing here changes that, since programs use the flag to keep libraries apart; but it is said,
 * and frees are conservative, as after a name that no table knows (unknown.c).
 *
 * Such a library matters only if it names CUDA's libraries: as its dependencies or as the text that
 * it opens the driver by. That is read from the loaded object, at the next look-up or load by any
 * thread, or when the library starts or reports. */
#define _GNU_SOURCE
#include "shim/real/bypass.h"
#include "shim/shim.h"

#include "core/io/elf.h"

#include <stdio.h>
#include <string.h>

#define PENDING_MAX 16 /* loads that were not checked yet; further ones are not checked */
#define NAME_BYTES 128

enum state { FREE, WRITING, PENDING, CHECKING };

static struct {
    _Atomic(uint32_t) pending_count;
    struct {
        _Atomic(uint32_t) state;
        char name[NAME_BYTES];
    } pending[PENDING_MAX];
    atomic_flag is_taken; /* by the first library that matters */
    char text[NAME_BYTES + 192];
    atomic_bool is_written;
    atomic_bool is_applied;
} bypass = {.is_taken = ATOMIC_FLAG_INIT};

void gc_bypass_load(const char *path, int flags)
{
    const char *slash = path == NULL ? NULL : strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;

    if (name == NULL || (flags & RTLD_DEEPBIND) == 0 || (flags & RTLD_NOLOAD) != 0 ||
        strlen(name) >= NAME_BYTES)
        return;
    for (int i = 0; i < PENDING_MAX; i++) {
        uint32_t expected = FREE;

        if (!atomic_compare_exchange_strong_explicit(&bypass.pending[i].state, &expected, WRITING,
                                                     memory_order_relaxed, memory_order_relaxed))
            continue;
        strcpy(bypass.pending[i].name, name);
        /* Release: pairs with the acquire in gc_bypass_check. */
        atomic_store_explicit(&bypass.pending[i].state, PENDING, memory_order_release);
        atomic_fetch_add_explicit(&bypass.pending_count, 1, memory_order_relaxed);
        return;
    }
}

static void apply(void)
{
    if (gc_shim.core == NULL || !gc_shim_is_started() ||
        atomic_exchange_explicit(&bypass.is_applied, true, memory_order_relaxed))
        return;
    gc_shim_enter(GC_API_COUNT);
    (void)gc_submit_set_conservative(gc_shim.core);
    gc_shim_leave();
    gc_log_write(&gc_shim.log, GC_LOG_WARN, "%s", bypass.text);
}

static void take(const char *name)
{
    if (atomic_flag_test_and_set_explicit(&bypass.is_taken, memory_order_relaxed))
        return;
    snprintf(bypass.text, sizeof(bypass.text),
             "%s is loaded with RTLD_DEEPBIND: its CUDA calls pass this library by, so the memory "
             "that it takes is neither cached nor counted nor limited",
             name);
    atomic_store_explicit(&bypass.is_written, true, memory_order_release);
}

void gc_bypass_check(void)
{
    for (int i = 0;
         i < PENDING_MAX && atomic_load_explicit(&bypass.pending_count, memory_order_relaxed) > 0;
         i++) {
        uint32_t expected = PENDING;
        bool names_cuda;

        if (!atomic_compare_exchange_strong_explicit(&bypass.pending[i].state, &expected, CHECKING,
                                                     memory_order_acquire, memory_order_relaxed))
            continue;
        const bool is_loaded = gc_elf_mentions(bypass.pending[i].name, "libcuda", &names_cuda);
        if (is_loaded && names_cuda)
            take(bypass.pending[i].name);
        if (is_loaded)
            atomic_fetch_sub_explicit(&bypass.pending_count, 1, memory_order_relaxed);
        atomic_store_explicit(&bypass.pending[i].state, is_loaded ? FREE : PENDING,
                              memory_order_release);
    }
    if (atomic_load_explicit(&bypass.is_written, memory_order_acquire))
        apply();
}

const char *gc_bypass_text(void)
{
    return atomic_load_explicit(&bypass.is_written, memory_order_acquire) ? bypass.text : NULL;
}
