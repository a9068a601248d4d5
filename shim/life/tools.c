/* Profilers and memory checkers beside the library.
 *
 * A profiler that CUPTI serves (nsys, ncu, PyTorch's) sees the calls of the runtime and the driver.
 * It is injected by CUDA_INJECTION64_PATH, or the program itself loads CUPTI. Then no cudaMalloc or
 * cudaFree is served without the runtime.
 *
 * A memory checker (compute-sanitizer) checks each access against the driver's allocations: within
 * the library's pages it would miss an overrun. Under one the mode is `track`, unless
 * GPUCACHE_MODE is set. It is known by the file that is injected.
 *
 * The video encoder (NVENC) registers the program's memory as its input. It refuses memory of the
 * driver's pools, and is thought to refuse mapped memory. Once the program has loaded it every
 * allocation is one of the driver's own, as for programs that export memory (wrap/ipc_api.c). */
#define _GNU_SOURCE
#include "shim/life/tools.h"
#include "shim/shim.h"

#include "core/io/elf.h"

#include <stdlib.h>
#include <string.h>

#define PROFILER "libcupti"
#define CHECKER "libsanitizer-collection"
#define ENCODER "libnvidia-encode"
#define ENCODER_ENTRY "NvEncodeAPICreateInstance"

static const char *file_name(const char *path)
{
    const char *slash = path == NULL ? NULL : strrchr(path, '/');

    return slash != NULL ? slash + 1 : path != NULL ? path : "";
}

static void watch(const char *why)
{
    if (!atomic_exchange_explicit(&gc_shim.is_watched, true, memory_order_relaxed))
        gc_log_write(&gc_shim.log, GC_LOG_INFO,
                     "%s: each cudaMalloc and cudaFree goes through the runtime", why);
}

static void follow_checker(const char *injected)
{
    if (!gc_elf_names_library(file_name(injected), CHECKER) || gc_shim.options == NULL ||
        gc_options_is_set(gc_shim.options, GC_OPTION_MODE) ||
        gc_shim.options->mode != GC_MODE_CACHE)
        return;
    gc_shim.options->mode = GC_MODE_TRACK;
    gc_log_write(&gc_shim.log, GC_LOG_INFO,
                 "a memory checker is injected: GPUCACHE_MODE=track, so that it sees each "
                 "allocation; set GPUCACHE_MODE to choose");
}

static void serve_encoder(void)
{
    static atomic_flag logged = ATOMIC_FLAG_INIT;

    if (atomic_exchange_explicit(&gc_shim.ipc_used, true, memory_order_relaxed))
        return;
    gc_log_once(&gc_shim.log, &logged, GC_LOG_INFO,
                "the program uses NVENC, which may refuse mapped memory: from now on each "
                "allocation is one of the driver's own");
}

void gc_tools_look_up(const char *name)
{
    if (strcmp(name, ENCODER_ENTRY) == 0)
        serve_encoder();
}

void gc_tools_start(void)
{
    const char *injected = secure_getenv("CUDA_INJECTION64_PATH");

    if (injected != NULL && injected[0] != '\0') {
        watch("CUDA_INJECTION64_PATH is set");
        follow_checker(injected);
    } else if (gc_elf_find_function(PROFILER, "cuptiSubscribe") != NULL) {
        watch("CUPTI is loaded");
    }
    if (gc_elf_find_function(ENCODER, ENCODER_ENTRY) != NULL)
        serve_encoder();
}

void gc_tools_load(const char *path)
{
    if (gc_elf_names_library(file_name(path), PROFILER))
        watch("CUPTI is loaded");
    if (gc_elf_names_library(file_name(path), ENCODER))
        serve_encoder();
}
