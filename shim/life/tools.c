/* Profilers and memory checkers beside the library.
 *
 * A profiler that CUPTI serves (nsys, ncu, PyTorch's) sees the calls of the runtime and the driver.
 * It is injected by CUDA_INJECTION64_PATH, or the program itself uses CUPTI. Then no cudaMalloc or
 * cudaFree is served without the runtime. A CUPTI that is only loaded changes nothing: every
 * process that uses PyTorch has one. At its first use CUPTI looks up the driver's tables.
 *
 * A memory checker (compute-sanitizer) checks each access against the driver's allocations: within
 * the library's pages it would miss an overrun. Under one the mode is `track`, unless
 * GPUCACHE_MODE is set. It is known by the file that is injected, or by its library.
 *
 * The video encoder (NVENC) registers the program's memory as its input. It refuses memory of the
 * driver's pools, and is thought to refuse mapped memory. Once the program has loaded it every
 * allocation is one of the driver's own, as for programs that export memory (wrap/ipc_api.c). */
#define _GNU_SOURCE
#include "shim/life/tools.h"
#include "shim/real/loads.h"
#include "shim/shim.h"

#include "core/io/elf_object.h"

#include <stdlib.h>
#include <string.h>

#define ENCODER_ENTRY "NvEncodeAPICreateInstance"
#define TABLES_ENTRY "cuGetExportTable"
#define CHECKER "libsanitizer-"

/* The beginnings of the functions of CUPTI by which a tool asks for calls. */
static const char *const asking[] = {"cuptiSubscribe", "cuptiActivityEnable", "cuptiEnableCallback",
                                     "cuptiEnableDomain", "cuptiEnableAllDomains"};

static void watch(const char *why)
{
    if (!atomic_exchange_explicit(&gc_shim.is_watched, true, memory_order_relaxed))
        gc_log_write(&gc_shim.log, GC_LOG_INFO,
                     "%s: each cudaMalloc and cudaFree goes through the runtime", why);
}

static bool is_checker(const char *path)
{
    return strncmp(gc_elf_file_name(path), CHECKER, strlen(CHECKER)) == 0;
}

static void follow_checker(void)
{
    if (gc_shim.options == NULL || gc_options_is_set(gc_shim.options, GC_OPTION_MODE) ||
        gc_shim.options->mode != GC_MODE_CACHE)
        return;
    gc_shim.options->mode = GC_MODE_TRACK;
    gc_log_write(&gc_shim.log, GC_LOG_INFO,
                 "a memory checker is injected: GPUCACHE_MODE=track, so that it sees each "
                 "allocation; set GPUCACHE_MODE to choose");
}

static bool is_asking(const char *name)
{
    for (size_t i = 0; i < sizeof(asking) / sizeof(asking[0]); i++)
        if (strncmp(name, asking[i], strlen(asking[i])) == 0)
            return true;
    return false;
}

void gc_tools_look_up(const char *name, const void *caller)
{
    if (name[0] == 'N' && strcmp(name, ENCODER_ENTRY) == 0)
        gc_loads_serve_encoder();
    else if (name[0] == 'c' && name[1] == 'u' &&
             (is_asking(name) ||
              (strcmp(name, TABLES_ENTRY) == 0 && gc_loads_is_code(caller, GC_LOADS_PROFILER))))
        watch("the program uses CUPTI");
}

void gc_tools_start(void)
{
    const char *injected = secure_getenv("CUDA_INJECTION64_PATH");

    gc_loads_scan();
    if (injected != NULL && injected[0] != '\0')
        watch("CUDA_INJECTION64_PATH is set");
    if (gc_loads_has(GC_LOADS_CHECKER) || (injected != NULL && is_checker(injected))) {
        watch("a memory checker is loaded");
        follow_checker();
    }
}
