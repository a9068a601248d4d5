/* cuGetProcAddress: from a base name, a CUDA version and flags to the entry point of exactly that
 * ABI.
 *
 * The tables name, for each base name, which symbol it means from which version on.
 * SIMCUDA_DRIVER_VERSION hides rows that are newer than the driver pretends to be. */
#define _GNU_SOURCE
#include "tests/simcuda/sim.h"

#include <string.h>

/* Prototypes are not needed to take an address; those of the memory part are not known here. */
#define SIM_DECLARE_NONE(symbol) extern char simcuda_at_##symbol[] __asm__(#symbol);
#define SIM_DECLARE_PTSZ(symbol)                                                                   \
    SIM_DECLARE_NONE(symbol) extern char simcuda_at_##symbol##_ptsz[] __asm__(#symbol "_ptsz");
#define SIM_DECLARE_PTDS(symbol)                                                                   \
    SIM_DECLARE_NONE(symbol) extern char simcuda_at_##symbol##_ptds[] __asm__(#symbol "_ptds");
#define SIM_EXPORT(base, version, variant, symbol) SIM_DECLARE_##variant(symbol)
#include "tests/simcuda/driver/exports_engine.def"
#if __has_include("tests/simcuda/driver/exports_memory.def")
#include "tests/simcuda/driver/exports_memory.def"
#endif
#undef SIM_EXPORT

#define SIM_PER_THREAD_NONE(symbol) NULL
#define SIM_PER_THREAD_PTSZ(symbol) simcuda_at_##symbol##_ptsz
#define SIM_PER_THREAD_PTDS(symbol) simcuda_at_##symbol##_ptds

static const struct export_row {
    const char *base;
    int version;
    void *plain, *per_thread;
} rows[] = {
#define SIM_EXPORT(base, version, variant, symbol)                                                 \
    {#base, version, simcuda_at_##symbol, SIM_PER_THREAD_##variant(symbol)},
#include "tests/simcuda/driver/exports_engine.def"
#if __has_include("tests/simcuda/driver/exports_memory.def")
#include "tests/simcuda/driver/exports_memory.def"
#endif
#undef SIM_EXPORT
};

/* With SIMCUDA_LOOKUPS=apart each row has addresses of its own, which jump to the exported symbols:
 * NVIDIA's driver is thought to have them apart. */
#ifdef __aarch64__
#define SIM_JUMP "b "
#else
#define SIM_JUMP "jmp "
#endif
#define SIM_APART_BYTES 16
#define SIM_JUMP_NONE(symbol) "nop"
#define SIM_JUMP_PTSZ(symbol) SIM_JUMP #symbol "_ptsz"
#define SIM_JUMP_PTDS(symbol) SIM_JUMP #symbol "_ptds"
extern const char sim_apart[];
__asm__(".text\n.p2align 4\nsim_apart:\n"
#define SIM_EXPORT(base, version, variant, symbol)                                                 \
    ".p2align 4\n" SIM_JUMP #symbol "\n.p2align 4\n" SIM_JUMP_##variant(symbol) "\n"
#include "tests/simcuda/driver/exports_engine.def"
#if __has_include("tests/simcuda/driver/exports_memory.def")
#include "tests/simcuda/driver/exports_memory.def"
#endif
#undef SIM_EXPORT
        ".previous\n");

/* The first row of several with one symbol counts. */
static void *address_of(const struct export_row *row, bool per_thread)
{
    void *symbol = per_thread ? row->per_thread : row->plain;
    size_t index = 0;

    if (!sim_settings()->looks_up_apart)
        return symbol;
    while ((per_thread ? rows[index].per_thread : rows[index].plain) != symbol)
        index++;
    return (void *)(uintptr_t)(sim_apart + (index * 2 + per_thread) * SIM_APART_BYTES); /* NOLINT */
}

/* With the flag for the per-thread default stream a name that has such a flavour means no other.
 * The flavours came with CUDA 7. */
#define SIM_FIRST_PER_THREAD 7000u
static CUdriverProcAddressQueryResult look_up(const char *base, unsigned version, uint64_t flags,
                                              void **address)
{
    const struct export_row *best = NULL;
    bool is_known = false, is_per_thread = false;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct export_row *row = &rows[i];
        if (row->version > sim_settings()->driver_version || strcmp(row->base, base) != 0)
            continue;
        is_known = true;
        if (row->per_thread && !is_per_thread &&
            (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)) {
            is_per_thread = true;
            best = NULL;
        }
        if ((!is_per_thread || (row->per_thread && version >= SIM_FIRST_PER_THREAD)) &&
            (unsigned)row->version <= version && (!best || row->version > best->version))
            best = row;
    }
    *address = NULL;
    if (!best)
        return is_known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                        : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    *address = address_of(best, is_per_thread);
    return CU_GET_PROC_ADDRESS_SUCCESS;
}

/* Leaves the address alone where the arguments are wrong. Versions count without a sign, and one
 * newer than the driver means its newest. The address is NULL where nothing is found. */
static CUresult get_address(const char *base, void **address, int version, uint64_t flags,
                            CUdriverProcAddressQueryResult *status)
{
    const uint64_t known_flags =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

    if (!base || !address || (flags & ~known_flags))
        return CUDA_ERROR_INVALID_VALUE;
    *status = look_up(base, (unsigned)version, flags, address);
    return CUDA_SUCCESS;
}

/* The older ABI has no status: a name that is not there is an error, and nothing is written. */
SIM_API(cuGetProcAddress, (const char *base, void **address, int version, cuuint64_t flags),
        (base, address, version, flags), "%s %d %llu", base ? base : "(null)", version,
        (unsigned long long)flags)
{
    CUdriverProcAddressQueryResult status;
    void *found = NULL;
    CUresult result = get_address(base, &found, version, flags, &status);

    if (result == CUDA_SUCCESS && !found)
        result = CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS && !address)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *address = found;
    return result;
}

SIM_API(cuGetProcAddress_v2,
        (const char *base, void **address, int version, cuuint64_t flags,
         CUdriverProcAddressQueryResult *status),
        (base, address, version, flags, status), "%s %d %llu", base ? base : "(null)", version,
        (unsigned long long)flags)
{
    CUdriverProcAddressQueryResult found;
    CUresult result = get_address(base, address, version, flags, &found);
    if (status && result == CUDA_SUCCESS)
        *status = found;
    return result;
}
