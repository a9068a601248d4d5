/* What remains of mapped memory when a context ends, and frees that come late. Each case is a
 * process of its own. usage: teardown reset | destroy | none | atexit | thread */
#include "tests/gpu/gpu.h"

#include <signal.h>
#include <sys/wait.h>

#define PAGE (2 * MIB)
#define END_NS_MAX (4000 * MS)

static struct {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range, block;
} on;

static void map_page(void)
{
    const CUmemAllocationProp properties = memory_of(false);

    CU(cuMemAddressReserve, &on.range, PAGE, 0, 0, 0);
    CU(cuMemCreate, &on.handle, PAGE, &properties, 0);
    CU(cuMemMap, on.range, PAGE, 0, on.handle, 0);
    gpu_check(open_access(on.range, PAGE), "cuMemSetAccess", __FILE__, __LINE__);
    CU(cuMemAlloc, &on.block, PAGE);
    CU(cuMemsetD8, on.range, 7, PAGE);
}

/* The calls that end the mapping, after its context's end. */
static void unmap_page(const char *name)
{
    row(cu.cuMemUnmap(on.range, PAGE), "code", "%s.unmap", name);
    row(cu.cuMemRelease(on.handle), "code", "%s.release", name);
    row(cu.cuMemAddressFree(on.range, PAGE), "code", "%s.address_free", name);
}

static void reset(void)
{
    CUcontext again = NULL;
    uint8_t value = 0;

    gpu_open();
    map_page();
    row_code(cu.cuDevicePrimaryCtxReset(gpu.device), "reset.code");
    row_code(cu.cuDevicePrimaryCtxRetain(&again, gpu.device), "reset.retain");
    row(again == gpu.context, "yes", "reset.same_handle");
    CU(cuCtxSetCurrent, again);
    row_code(cu.cuMemcpyDtoH(&value, on.range, 1), "reset.read_mapping");
    row(value == 7, "yes", "reset.mapping_kept");
    row_code(cu.cuMemFree(on.block), "reset.free_block");
    unmap_page("reset");
    row_code(cu.cuMemAlloc(&on.block, PAGE), "reset.alloc_after");
    row_code(cu.cuMemFree(on.block), "reset.free_after");
}

static void destroy(void)
{
    CUresult (*create)(CUcontext *, unsigned, CUdevice) = NULL;
    CUcontext other;

    gpu_load();
    *(void **)&create = dlsym(gpu.library, "cuCtxCreate_v2");
    if (create == NULL) {
        skip("destroy.*", "the driver exports no cuCtxCreate_v2");
        return;
    }
    gpu_check(create(&other, 0, gpu.device), "cuCtxCreate", __FILE__, __LINE__);
    map_page();
    row_code(cu.cuCtxDestroy(other), "destroy.code");
    unmap_page("destroy");
}

/* Mapped memory with no context at all. */
static void without_context(void)
{
    const CUmemAllocationProp properties = memory_of(false);
    size_t available, total;

    gpu_load();
    row_code(cu.cuMemGetInfo(&available, &total), "none.info");
    row_code(cu.cuMemAddressReserve(&on.range, PAGE, 0, 0, 0), "none.reserve");
    row_code(cu.cuMemCreate(&on.handle, PAGE, &properties, 0), "none.create");
    row_code(cu.cuMemMap(on.range, PAGE, 0, on.handle, 0), "none.map");
    row_code(open_access(on.range, PAGE), "none.access");
    unmap_page("none");
}

static void free_late(void)
{
    row_code(cu.cuMemFree(on.block), "atexit.free");
}

static void free_at_exit(void)
{
    atexit(free_late); /* before CUDA: runs after the driver's own handlers */
    gpu_open();
    CU(cuMemAlloc, &on.block, PAGE);
}

/* A thread that still allocates and frees while the process ends. */
static void *work_on(void *unused)
{
    CUdeviceptr block;

    CU(cuCtxSetCurrent, gpu.context);
    while (cu.cuMemAlloc(&block, PAGE) == CUDA_SUCCESS && cu.cuMemFree(block) == CUDA_SUCCESS)
        ;
    for (;;)
        pause();
    return unused;
}

/* Whether such a process ends, and how: seen by its parent. */
static void end_with_thread(void)
{
    pthread_t thread;
    const pid_t child = fork(); /* before CUDA */
    uint64_t begun_ns = now_ns();
    int status = 0;
    pid_t ended = 0;

    if (child == 0) {
        gpu_open();
        if (pthread_create(&thread, NULL, work_on, NULL) != 0)
            _exit(EXIT_FAILURE);
        pause_ns(50 * MS);
        exit(EXIT_SUCCESS);
    }
    while (ended == 0 && now_ns() - begun_ns < END_NS_MAX) {
        ended = waitpid(child, &status, WNOHANG);
        pause_ns(MS);
    }
    row(ended == child, "yes", "thread.ends");
    if (ended == child) {
        row(status, "status", "thread.status");
        row((double)(now_ns() - begun_ns) / 1e6, "ms", "thread.process");
    } else {
        kill(child, SIGKILL);
    }
}

int main(int argument_count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"reset", reset},
                 {"destroy", destroy},
                 {"none", without_context},
                 {"atexit", free_at_exit},
                 {"thread", end_with_thread}};

    for (unsigned i = 0; argument_count > 1 && i < sizeof(cases) / sizeof(cases[0]); i++)
        if (strcmp(arguments[1], cases[i].name) == 0) {
            cases[i].run();
            return EXIT_SUCCESS;
        }
    return 2;
}
