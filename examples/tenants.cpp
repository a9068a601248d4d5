// Two models in one process, each a tenant with a limit of its own: what a model allocates while its
// tenant is current counts for it, and the one that is full leaves the other alone.
//
//     LD_PRELOAD=libgpucache.so ./tenants
/* link: -lgpucache -l:libcuda.so.1 -pthread */
#include "gpucache.h"

#include <cstdio>
#include <cuda.h>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t MiB = 1 << 20;

void check(gpucache_status status)
{
    if (status != GPUCACHE_OK)
        throw std::runtime_error(gpucache_status_text(status));
}

// The tenant is current on this thread until the scope ends; then the one before is again.
class Scope {
  public:
    explicit Scope(gpucache_tenant tenant) { check(gpucache_tenant_set_current(tenant, &before)); }
    ~Scope() { gpucache_tenant_set_current(before, nullptr); }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

  private:
    gpucache_tenant before = 0;
};

class Model {
  public:
    Model(const char *name, std::size_t limit)
    {
        check(gpucache_tenant_register(name, 0, limit, &tenant));
    }
    ~Model()
    {
        for (CUdeviceptr block : blocks)
            cuMemFree(block);
        gpucache_tenant_unregister(tenant); // nothing of it is left
    }
    Model(const Model &) = delete;
    Model &operator=(const Model &) = delete;

    // How many of `count` blocks it gets.
    unsigned load(CUcontext context, unsigned count)
    {
        const Scope scope(tenant);
        unsigned got = 0;
        CUdeviceptr block;
        cuCtxSetCurrent(context);
        while (got < count && cuMemAlloc(&block, 10 * MiB) == CUDA_SUCCESS) {
            blocks.push_back(block);
            got++;
        }
        return got;
    }

    gpucache_tenant_statistics figures() const
    {
        gpucache_tenant_statistics now = {};
        now.struct_bytes = sizeof(now);
        check(gpucache_tenant_get_statistics(tenant, 0, &now));
        return now;
    }

  private:
    gpucache_tenant tenant = 0;
    std::vector<CUdeviceptr> blocks;
};

void show(const char *name, unsigned got, const Model &model)
{
    const gpucache_tenant_statistics now = model.figures();
    std::printf("%s: %u blocks, %zu of %zu MiB, refused %llu\n", name, got,
                static_cast<std::size_t>(now.requested_bytes) / MiB,
                static_cast<std::size_t>(now.limit_bytes) / MiB,
                static_cast<unsigned long long>(now.oom_count));
}

int run()
{
    CUcontext context;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS)
        return 1;
    Model small("small", 60 * MiB), large("large", 200 * MiB);
    unsigned of_small = 0, of_large = 0;
    std::thread first([&] { of_small = small.load(context, 20); });
    std::thread second([&] { of_large = large.load(context, 20); });
    first.join();
    second.join();
    show("small", of_small, small);
    show("large", of_large, large);
    return of_small == 6 && of_large == 20 ? 0 : 1;
}

} // namespace

int main()
{
    try {
        return run();
    } catch (const std::exception &error) {
        std::printf("%s\n", error.what());
        return 1;
    }
}
