/* The real driver: found, and called. */
#ifndef GC_RESOLVE_H
#define GC_RESOLVE_H

#include "shim/real/rows.h"

#include <pthread.h>

#define GC_DRIVER_NAME "libcuda" /* for gc_elf_is_library */

/* Not linked: newer C libraries have other versions of these symbols, and older ones have them in
 * libpthread, which the driver loads. Found with the driver, NULL without one. */
struct gc_thread_calls {
    __typeof__(pthread_create) *create;
    __typeof__(pthread_key_create) *key_create;
    __typeof__(pthread_setspecific) *set_specific;
};
const struct gc_thread_calls *gc_resolve_thread_calls(void);

/* Whether the driver, which was found before, has a symbol of that name. */
bool gc_resolve_driver_exports(const char *name);
/* Finds libcuda among the loaded objects (`load`: or loads it) and fills the table. Idempotent,
 * never waits for another thread. False if there is no driver. */
extern atomic_bool gc_resolve_is_filled;
bool gc_resolve_fill(bool load);
static inline bool gc_resolve_driver(bool load)
{
    /* acquire: pairs with the release in gc_resolve_fill */
    return __builtin_expect(atomic_load_explicit(&gc_resolve_is_filled, memory_order_acquire), 1) ||
           gc_resolve_fill(load);
}
/* The slow half of GC_HAVE: queries the driver's own cuGetProcAddress for a row whose symbol it
 * does not export. */
bool gc_resolve_row(enum gc_row_id row);
/* The version that cuDriverGetVersion returns, queried once; 0 without a driver. */
int gc_resolve_driver_version(void);
/* True if the program's CUDA calls come to this library first: it stands before libc (so before
 * every look-up) and before the driver, preloaded or linked. Else it is only called by name. */
bool gc_resolve_is_interposing(void);
/* True if `address` is code of libcuda itself. */
bool gc_resolve_is_driver_code(const void *address);

/* Whether the driver has such an entry point: queried once. */
#define GC_HAVE(symbol) (GC_REAL(symbol) != NULL || gc_resolve_row(GC_ROW_##symbol))

/* Calls the real driver entry point and counts the call for `device` (struct gc_device *, NULL:
 * none). The program's calls go through shim/wrap/relieve.h. CUDA_ERROR_NOT_SUPPORTED where the
 * driver has no such entry point. Usage: GC_CALL(device, cuMemFree_v2, dptr) */
#define GC_CALL(device, symbol, ...)                                                               \
    (!GC_HAVE(symbol) ? CUDA_ERROR_NOT_SUPPORTED                                                   \
                      : (gc_shim_count((device), GC_API_##symbol),                                 \
                         gc_shim_check_result(GC_REAL(symbol)(__VA_ARGS__))))
/* As GC_CALL for USE rows: not counted. */
#define GC_USE(symbol, ...)                                                                        \
    (!GC_HAVE(symbol) ? CUDA_ERROR_NOT_SUPPORTED : GC_REAL(symbol)(__VA_ARGS__))

#endif
