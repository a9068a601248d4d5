/* PyTorch's pluggable allocator on gpucache.h: a request without memory is thrown as the C++ class
 * c10::OutOfMemoryError, which PyTorch hands to Python as torch.OutOfMemoryError. A pluggable
 * allocator that returns NULL is not checked by PyTorch.
 *
 * The file is built without PyTorch's headers, so that one object serves all its versions: the
 * class's type, its virtual table and the constructor of its base c10::Error are looked up by their
 * names (Itanium C++ ABI) in the PyTorch of the process. An error is constructed in room that is
 * larger than the class has ever been, and destroyed by its virtual destructor, as the compiler's
 * own `throw` does.
 *
 * A CUDA graph uses the memory of its capture for as long as it lives, also what was freed during
 * the capture. PyTorch names a pool for that: memory that is taken while the pool is open stays
 * with the pool, which hands it out again to its own captures alone, in the stream that freed it
 * (best fit, no splitting). The pool's end gives it back, behind the work of all streams. */
#define GPUCACHE_WANT_LOADER
#include "core/gpucache.h"

#include <atomic>
#include <cstdio>
#include <cxxabi.h>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <typeinfo>
#include <utility>

/* The versions of glibc before 2.34, which later ones have too. */
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlclose,dlclose@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace
{

constexpr size_t error_bytes = 4096; /* c10::Error has some 200 */

/* c10::SourceLocation */
struct source_location {
    const char *function;
    const char *file;
    uint32_t line;
};

struct {
    gpucache_functions library;
    void (*construct)(void *self, source_location where, std::string message);
    std::type_info *out_of_memory;
    std::type_info *error;
    void **out_of_memory_table;
} bound;

void destroy(void *self)
{
    using destructor = void (*)(void *);
    (**static_cast<destructor **>(self))(self);
}

[[noreturn]] void throw_as(bool is_short, const std::string &message)
{
    void *room = abi::__cxa_allocate_exception(error_bytes);
    bound.construct(room, {"gpucache_torch_take", "gpucache", 0}, message);
    if (is_short)
        *static_cast<void **>(room) = bound.out_of_memory_table + 2; /* behind offset and type */
    abi::__cxa_throw(room, is_short ? bound.out_of_memory : bound.error, destroy);
}

std::string size_text(uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
    double value = static_cast<double>(bytes);
    char text[32];
    unsigned unit = 0;
    for (; unit < 3 && value >= 1024; unit++)
        value /= 1024;
    snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return text;
}

std::string figures_text(int device)
{
    gpucache_statistics figures = {};
    figures.struct_bytes = sizeof(figures);
    if (bound.library.gpucache_get_statistics(device, &figures) != GPUCACHE_OK)
        return "";
    std::string text = " GPU " + std::to_string(device) + " has " + size_text(figures.total_bytes);
    if (figures.limit_bytes != GPUCACHE_NO_LIMIT)
        text += ", the limit is " + size_text(figures.limit_bytes);
    return text + ", live are " + size_text(figures.allocated_bytes) + ", reserved " +
           size_text(figures.reserved_bytes) + ", idle " + size_text(figures.idle_bytes) + ".";
}

} // namespace

/* Finds the functions of `library`, a handle of libgpucache.so, and PyTorch's class in `c10` and
 * `c10_cuda`, handles of libc10.so and libc10_cuda.so. NULL, or the name that was not found. */
EXPORT const char *gpucache_torch_bind(void *library, void *c10, void *c10_cuda)
{
    static const char construct[] = "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_string"
                                    "IcSt11char_traitsIcESaIcEEE";
    static const char *const names[] = {construct, "_ZTIN3c105ErrorE",
                                        "_ZTIN3c1016OutOfMemoryErrorE",
                                        "_ZTVN3c1016OutOfMemoryErrorE"};
    void *found[4];
    if (gpucache_load(library, &bound.library) != GPUCACHE_OK)
        return "gpucache_api_version";
    for (int i = 0; i < 4; i++) {
        found[i] = dlsym(i < 2 ? c10 : c10_cuda, names[i]);
        if (found[i] == nullptr)
            return names[i];
    }
    memcpy(&bound.construct, &found[0], sizeof(found[0]));
    bound.error = static_cast<std::type_info *>(found[1]);
    bound.out_of_memory = static_cast<std::type_info *>(found[2]);
    bound.out_of_memory_table = static_cast<void **>(found[3]);
    return nullptr;
}

namespace
{

using pool_id = std::pair<unsigned long long, unsigned long long>; /* c10::MempoolId_t */
using stream_filter = std::function<bool(void *stream)>;

struct block {
    void *pointer;
    size_t bytes;
    void *stream; /* that freed it */
};

/* The stream of a block that other streams use, too (record_stream): no request is in it, so that
 * the block is not handed out again before the pool's end. */
void *const no_stream = reinterpret_cast<void *>(~uintptr_t{0});

/* The memory of the graphs that share a pool of PyTorch's. It ends with the last graph and the last
 * live block. */
struct graph_pool {
    unsigned graph_count = 0;
    size_t live_count = 0;
    stream_filter takes; /* empty: no capture is under way */
    std::multimap<size_t, block> idle;
};

struct live_block {
    graph_pool *pool;
    size_t bytes;
    bool is_recorded;
};

struct {
    std::mutex lock; /* no call of the library is made under it */
    std::map<std::pair<int, pool_id>, graph_pool *> pools; /* those with graphs */
    std::map<void *, live_block> live;
    std::atomic<bool> has_pools; /* ever: a program without graphs takes no lock */
} graphs;

/* Half as much again at most, so that a small tensor does not keep a large block. */
block take_idle(graph_pool *pool, size_t bytes, void *stream)
{
    for (auto at = pool->idle.lower_bound(bytes);
         at != pool->idle.end() && at->first <= bytes + bytes / 2; ++at) {
        if (at->second.stream == stream) {
            const block found = at->second;
            pool->idle.erase(at);
            return found;
        }
    }
    return {};
}

/* A block less is live. */
void leave(graph_pool *pool)
{
    if (--pool->live_count == 0 && pool->graph_count == 0)
        delete pool;
}

graph_pool *pool_of(int device, void *stream)
{
    for (const auto &entry : graphs.pools)
        if (entry.first.first == device && entry.second->takes && entry.second->takes(stream))
            return entry.second;
    return nullptr;
}

void *take(size_t bytes, int device, void *stream)
{
    void *pointer = nullptr;
    const gpucache_status status = bound.library.gpucache_malloc(&pointer, bytes, device, stream);
    const bool is_short = status == GPUCACHE_OUT_OF_MEMORY || status == GPUCACHE_LIMIT_REACHED;
    if (is_short)
        throw_as(true, "CUDA out of memory. Tried to allocate " + size_text(bytes) + ": " +
                           bound.library.gpucache_status_text(status) + "." + figures_text(device));
    if (status != GPUCACHE_OK)
        throw_as(false, "gpucache: " + size_text(bytes) + " on GPU " + std::to_string(device) +
                            ": " + bound.library.gpucache_status_text(status));
    return pointer;
}

} // namespace

/* For CUDAPluggableAllocator, once bound. */
EXPORT void *gpucache_torch_take(ssize_t bytes, int device, void *stream)
{
    graph_pool *pool = nullptr;
    if (bytes <= 0)
        return nullptr;
    const auto size = static_cast<size_t>(bytes);
    if (graphs.has_pools) {
        std::lock_guard<std::mutex> guard(graphs.lock);
        pool = pool_of(device, stream);
        const block idle = pool != nullptr ? take_idle(pool, size, stream) : block{};
        if (pool != nullptr)
            pool->live_count++; /* it stays until the block is entered */
        if (idle.pointer != nullptr) {
            graphs.live[idle.pointer] = {pool, idle.bytes, false};
            return idle.pointer;
        }
    }
    if (pool == nullptr)
        return take(size, device, stream);
    void *pointer = nullptr;
    try {
        pointer = take(size, device, stream);
    } catch (...) {
        std::lock_guard<std::mutex> guard(graphs.lock);
        leave(pool);
        throw;
    }
    std::lock_guard<std::mutex> guard(graphs.lock);
    graphs.live[pointer] = {pool, size, false};
    return pointer;
}

EXPORT void gpucache_torch_give(void *pointer, ssize_t bytes, int device, void *stream)
{
    bool is_graphs = false;
    if (graphs.has_pools) {
        std::lock_guard<std::mutex> guard(graphs.lock);
        const auto found = graphs.live.find(pointer);
        if (found != graphs.live.end()) {
            const live_block freed = found->second;
            const bool is_kept = freed.pool->graph_count > 0;
            graphs.live.erase(found);
            if (is_kept)
                freed.pool->idle.insert(
                    {freed.bytes, {pointer, freed.bytes, freed.is_recorded ? no_stream : stream}});
            leave(freed.pool);
            if (is_kept)
                return;
            is_graphs = true;
        }
    }
    if (is_graphs) /* a graph that is gone used it in streams of its own */
        bound.library.gpucache_cupy_free(nullptr, pointer, device);
    else
        bound.library.gpucache_torch_free(pointer, bytes, device, stream);
}

/* For set_record_stream_fn. */
EXPORT void gpucache_torch_record(void *pointer, void *stream)
{
    bound.library.gpucache_torch_record_stream(pointer, stream);
    if (graphs.has_pools) {
        std::lock_guard<std::mutex> guard(graphs.lock);
        const auto found = graphs.live.find(pointer);
        if (found != graphs.live.end())
            found->second.is_recorded = true;
    }
}

/* For set_begin_allocate_to_pool, set_end_allocate_to_pool_fn and set_release_pool: a capture
 * begins and ends; a graph is destroyed. */
EXPORT void gpucache_torch_begin(int device, pool_id id, stream_filter takes)
{
    std::lock_guard<std::mutex> guard(graphs.lock);
    graph_pool *&pool = graphs.pools[{device, id}];
    if (pool == nullptr)
        pool = new graph_pool;
    pool->graph_count++;
    pool->takes = std::move(takes);
    graphs.has_pools = true;
}

EXPORT void gpucache_torch_end(int device, pool_id id)
{
    std::lock_guard<std::mutex> guard(graphs.lock);
    const auto found = graphs.pools.find({device, id});
    if (found != graphs.pools.end())
        found->second->takes = nullptr;
}

EXPORT void gpucache_torch_release(int device, pool_id id)
{
    std::multimap<size_t, block> idle;
    {
        std::lock_guard<std::mutex> guard(graphs.lock);
        const auto found = graphs.pools.find({device, id});
        if (found == graphs.pools.end() || --found->second->graph_count > 0)
            return;
        graph_pool *pool = found->second;
        graphs.pools.erase(found);
        pool->takes = nullptr;
        idle.swap(pool->idle);
        if (pool->live_count == 0)
            delete pool;
    }
    for (const auto &entry : idle)
        bound.library.gpucache_cupy_free(nullptr, entry.second.pointer, device);
}
