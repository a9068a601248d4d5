/* One table of the libraries that change what may be served, by the objects that are loaded: not by
 * the paths that the program asks for, since a load may fail, and a library may come as another's
 * dependency. They are known by the beginnings of their names: packages rename copies of them
 * (libibverbs-1a2b3c4d.so.1).
 *
 * A thread that began a load scans at its next call (account/outside.c). A scan walks the objects
 * behind those that it knows, as long as none was unloaded meanwhile. */
#define _GNU_SOURCE
#include "shim/real/loads.h"
#include "shim/shim.h"

#include "core/io/elf.h"
#include "core/io/elf_object.h"

#include <stdatomic.h>
#include <string.h>

static const struct {
    const char *prefix;
    enum gc_loads_effect effect;
} libraries[] = {
    {"libibverbs", GC_LOADS_OUTSIDE},
    {"libgdrapi", GC_LOADS_OUTSIDE},
    {"libcufile", GC_LOADS_OUTSIDE},
    /* Not libcufile, which PyTorch's wheels bring along unused: one extent a block takes memory. */
    {"libibverbs", GC_LOADS_REGISTRAR},
    {"libgdrapi", GC_LOADS_REGISTRAR},
    {"libnvidia-encode", GC_LOADS_ENCODER},
    {"libsanitizer-collection", GC_LOADS_CHECKER},
    {"libsanitizer-public", GC_LOADS_CHECKER},
    {"libcupti", GC_LOADS_PROFILER},
};

static atomic_uint found;         /* a bit for each effect */
static struct gc_elf_loads known; /* changes under the dynamic linker's lock */

static void note(void *unused, const char *path)
{
    const char *name = gc_elf_file_name(path);

    (void)unused;
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
        if (strncmp(name, libraries[i].prefix, strlen(libraries[i].prefix)) == 0)
            atomic_fetch_or_explicit(&found, 1U << libraries[i].effect, memory_order_relaxed);
}

void gc_loads_serve_encoder(void)
{
    if (!atomic_exchange_explicit(&gc_shim.ipc_used, true, memory_order_relaxed))
        gc_log_write(&gc_shim.log, GC_LOG_INFO,
                     "the program uses NVENC, which may refuse mapped memory: from now on each "
                     "allocation is one of the driver's own");
}

static void warn_of_checker(void)
{
    static atomic_flag is_warned = ATOMIC_FLAG_INIT;

    if (gc_shim.options->mode == GC_MODE_CACHE &&
        !gc_options_is_set(gc_shim.options, GC_OPTION_MODE))
        gc_log_once(&gc_shim.log, &is_warned, GC_LOG_WARN,
                    "a memory checker was loaded after the start: it does not see each allocation; "
                    "set GPUCACHE_MODE=track");
}

void gc_loads_scan(void)
{
    gc_elf_visit_loads(&known, note, NULL);
    if (gc_loads_has(GC_LOADS_ENCODER))
        gc_loads_serve_encoder();
    if (gc_loads_has(GC_LOADS_CHECKER) && gc_shim.core != NULL)
        warn_of_checker();
}

bool gc_loads_has(enum gc_loads_effect effect)
{
    return (atomic_load_explicit(&found, memory_order_relaxed) >> effect & 1) != 0;
}

bool gc_loads_is_code(const void *code, enum gc_loads_effect effect)
{
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
        if (libraries[i].effect == effect && gc_elf_is_library(code, libraries[i].prefix))
            return true;
    return false;
}
