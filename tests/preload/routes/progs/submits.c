/* Does every entry point that submits work count? Each is called with nothing in its arguments (the
 * driver is set to refuse it); a block that is freed after it must be pending, as it was not before
 * it.
 *
 * usage: submits names: prints the entry points; submits: prints those that do not count, those
 * that count and should not, and how many there are; submits single WHAT: when the time of the one
 * stream ends; submits retired waited|busy: whether a wait for it proves something. */
/* link: -l:libcuda.so.1 */
#define _GNU_SOURCE
#include "core/gpucache.h"
#include "tests/preload/progs/program.h"

#include <dlfcn.h>
#include <string.h>

#define BLOCK_BYTES (12u << 20) /* more than a thread keeps for itself */

typedef CUresult (*entry_function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                   uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                   uint64_t, uint64_t);

static const char *const submitting[] = {
#define SUBMIT(symbol, ...) #symbol,
#include "shim/api.def"
    /* with wrappers of their own */
    "cuMemcpyPeer",
    "cuMemcpyPeer_ptds",
    "cuMemcpyPeerAsync",
    "cuMemcpyPeerAsync_ptsz",
    "cuMemcpy3DPeer",
    "cuMemcpy3DPeer_ptds",
    "cuMemcpy3DPeerAsync",
    "cuMemcpy3DPeerAsync_ptsz",
    "cuGraphLaunch",
    "cuGraphLaunch_ptsz",
    "cuGraphUpload",
    "cuGraphUpload_ptsz",
    "cuGraphInstantiateWithParams",
    "cuGraphInstantiateWithParams_ptsz",
    "cuGraphicsUnmapResources",
    "cuGraphicsUnmapResources_ptsz",
    "cuMemMapArrayAsync",
    "cuMemMapArrayAsync_ptsz",
};
static const char *const harmless[] = {"cuMemGetInfo_v2", "cuEventQuery", "cuStreamCreate",
                                       "cuDeviceTotalMem_v2", "cuMemAddressReserve"};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t pending_bytes(void)
{
    static gpucache_status (*get)(int, struct gpucache_statistics *);
    struct gpucache_statistics figures = {.struct_bytes = sizeof(figures)};

    if (get == NULL)
        get = (gpucache_status(*)(int, struct gpucache_statistics *))dlsym(
            RTLD_DEFAULT, "gpucache_get_statistics");
    if (get == NULL || get(0, &figures) != GPUCACHE_OK) {
        fprintf(stderr, "no statistics\n");
        exit(EXIT_FAILURE);
    }
    return figures.pending_bytes;
}

static CUdeviceptr idle_block(void)
{
    CHECK(cuCtxSynchronize());
    return program_alloc(BLOCK_BYTES);
}

/* Whether a free after `entry` finds work that may not be done. */
static int counts(entry_function entry)
{
    CUdeviceptr block = idle_block();

    if (entry != NULL)
        (void)entry(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    CHECK(cuMemFree(block));
    return pending_bytes() != 0;
}

static entry_function find(const char *name)
{
    return (entry_function)dlsym(RTLD_DEFAULT, name);
}

static void leave_single(void)
{
    CUdeviceptr block = program_alloc(4096);
    CUstream stream;

    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemsetD32Async(block, 0, 1, stream));
    CHECK(cuMemsetD32Async(block, 0, 1, NULL));
}

static int check_all(void)
{
    unsigned found = 0;

    leave_single();
    if (counts(NULL))
        printf("a block is pending without work\n");
    for (size_t i = 0; i < COUNT(submitting); i++) {
        entry_function entry = find(submitting[i]);
        if (entry == NULL)
            continue;
        found++;
        if (!counts(entry))
            printf("%s does not count\n", submitting[i]);
    }
    for (size_t i = 0; i < COUNT(harmless); i++)
        if (counts(find(harmless[i])))
            printf("%s counts\n", harmless[i]);
    printf("%u of %u\n", found, (unsigned)COUNT(submitting));
    return 0;
}

static const char *state(CUdeviceptr block)
{
    CHECK(cuMemFree(block));
    return pending_bytes() != 0 ? "pending" : "free";
}

static int check_single(const char *last)
{
    CUdeviceptr block = idle_block(), scratch = program_alloc(4096);
    CUstream stream, other;
    CUgraph graph;

    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemsetD32Async(scratch, 0, 1, stream));
    printf("%s ", state(block));
    block = idle_block();
    CHECK(cuMemsetD32Async(scratch, 0, 1, stream));
    if (strcmp(last, "other") == 0)
        CHECK(cuMemsetD32Async(scratch, 0, 1, other));
    else if (strcmp(last, "legacy") == 0)
        CHECK(cuMemsetD32(scratch, 0, 1));
    else if (strcmp(last, "thread") == 0)
        CHECK(cuMemsetD32Async(scratch, 0, 1, CU_STREAM_PER_THREAD));
    else if (strcmp(last, "destroy") == 0)
        CHECK(cuStreamDestroy(stream));
    else if (strcmp(last, "capture") == 0) {
        CHECK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
        CHECK(cuStreamEndCapture(other, &graph));
        CHECK(cuMemsetD32Async(scratch, 0, 1, stream));
    } else if (strcmp(last, "wait") == 0)
        CHECK(cuStreamSynchronize(stream));
    printf("%s\n", state(block));
    return 0;
}

/* A block is freed with work queued, then another stream gets work. */
static int check_completed(int has_waited)
{
    CUdeviceptr block = idle_block(), scratch = program_alloc(4096);
    CUstream stream, other;

    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemsetD32Async(block, 0, 1, stream));
    CHECK(cuMemFree(block));
    if (has_waited)
        CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemsetD32Async(scratch, 0, 1, other));
    return 0;
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "names") == 0) {
        for (size_t i = 0; i < COUNT(submitting); i++)
            printf("%s\n", submitting[i]);
        return 0;
    }
    program_start();
    if (count > 2 && strcmp(arguments[1], "retired") == 0)
        return check_completed(strcmp(arguments[2], "waited") == 0);
    return count > 2 ? check_single(arguments[2]) : check_all();
}
