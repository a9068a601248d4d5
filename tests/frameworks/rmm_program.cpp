// RMM's resources, from its own headers: memory comes and goes on streams and in threads, device_buffers grow, memory
// runs out. Content goes through copies on the streams that the memory is for.
//
// usage: rmm_program AREA, with RMM_RESOURCE naming the resource and PROGRAM_RESULT the file for what was seen
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/binning_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/fixed_size_memory_resource.hpp>
#include <rmm/mr/device/limiting_resource_adaptor.hpp>
#include <rmm/mr/device/managed_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#include <rmm/mr/device/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/device/tracking_resource_adaptor.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t MIB = 1 << 20;
using base = rmm::mr::device_memory_resource;
using bytes_t = std::vector<unsigned char>;

void expect(bool condition, std::string const &what)
{
    if (!condition)
        throw std::runtime_error("wrong: " + what);
}

void check(cudaError_t error)
{
    expect(error == cudaSuccess, cudaGetErrorString(error));
}

using counted = rmm::mr::statistics_resource_adaptor<base>;

// What the program runs on; `kept` holds the resources below it, the lowest first.
struct resource {
    std::vector<std::shared_ptr<void>> kept;
    std::unique_ptr<rmm::device_async_resource_ref> ref;
    std::size_t largest = 3 * MIB;  // of a request
    counted *cuda_calls = nullptr;  // counts those of the resource that calls cudaMalloc

    resource() = default;
    resource(resource &&) = default;
    ~resource()
    {
        while (!kept.empty())
            kept.pop_back();
    }
};

template <typename T, typename... Arguments> T *add(resource &to, Arguments &&...arguments)
{
    auto made = std::make_shared<T>(std::forward<Arguments>(arguments)...);
    to.kept.push_back(made);
    return made.get();
}

resource make(std::string const &name)
{
    resource made;
    auto use_counted = [&] {
        made.cuda_calls = add<counted>(made, add<rmm::mr::cuda_memory_resource>(made));
        return made.cuda_calls;
    };
    auto use = [&](auto *top) { made.ref = std::make_unique<rmm::device_async_resource_ref>(*top); };

    if (name == "cuda") {
        use(add<rmm::mr::cuda_memory_resource>(made));
    } else if (name == "cuda_async") {
        use(add<rmm::mr::cuda_async_memory_resource>(made, 64 * MIB));
    } else if (name == "pool") {
        use(add<rmm::mr::pool_memory_resource<base>>(made, use_counted(), 16 * MIB));
    } else if (name == "pool_async") {
        auto *below = add<rmm::mr::cuda_async_memory_resource>(made, MIB);
        use(add<rmm::mr::pool_memory_resource<base>>(made, below, 16 * MIB));
    } else if (name == "arena") {
        use(add<rmm::mr::arena_memory_resource<base>>(made, use_counted(), 512 * MIB));
    } else if (name == "binning") {
        auto *below = use_counted();
        auto *bins = add<rmm::mr::binning_memory_resource<base>>(made, below, std::int8_t{12}, std::int8_t{20});
        use(add<rmm::mr::thread_safe_resource_adaptor<base>>(made, bins));
    } else if (name == "fixed_size") {
        made.largest = 2 * MIB;
        use(add<rmm::mr::fixed_size_memory_resource<base>>(made, use_counted(), 2 * MIB, 8));
    } else if (name == "limiting") {
        use(add<rmm::mr::limiting_resource_adaptor<base>>(made, use_counted(), 400 * MIB));
    } else if (name == "managed") {
        use(add<rmm::mr::managed_memory_resource>(made));
    } else if (name == "pinned") {
        use(add<rmm::mr::pinned_host_memory_resource>(made));
    } else if (name == "tracking") {
        use(add<rmm::mr::tracking_resource_adaptor<base>>(made, use_counted()));
    } else {
        throw std::runtime_error("no resource " + name);
    }
    return made;
}

bytes_t content(std::size_t size, unsigned seed)
{
    bytes_t made(size);
    std::mt19937 generator(seed);
    for (std::size_t i = 0; i + 4 <= size; i += 4) {
        auto word = generator();
        std::memcpy(&made[i], &word, 4);
    }
    return made;
}

struct block {
    void *address;
    bytes_t wanted;
    std::size_t stream;
};

// Blocks come and go on four streams in random order. A block that goes is copied to a fresh one on its stream first.
std::size_t churn(resource const &on, unsigned seed, int steps)
{
    std::mt19937 generator(seed);
    rmm::cuda_stream_pool streams(4);
    std::map<int, block> live;
    auto ref = *on.ref;
    auto drop = [&](int step) {
        auto one = live.at(step);
        auto stream = streams.get_stream(one.stream);
        bytes_t back(one.wanted.size());
        void *copy = ref.allocate_async(back.size(), stream);
        check(cudaMemcpyAsync(copy, one.address, back.size(), cudaMemcpyDefault, stream.value()));
        ref.deallocate_async(one.address, back.size(), stream);
        check(cudaMemcpyAsync(back.data(), copy, back.size(), cudaMemcpyDefault, stream.value()));
        ref.deallocate_async(copy, back.size(), stream);
        stream.synchronize();
        expect(back == one.wanted, "bytes of block " + std::to_string(step) + " of " + std::to_string(seed));
        live.erase(step);
    };

    for (int step = 0; step < steps; step++) {
        std::size_t number = generator() % 4, size = 1 + generator() % on.largest;
        auto stream = streams.get_stream(number);
        block one{ref.allocate_async(size, stream), content(size, seed * 1000 + static_cast<unsigned>(step)), number};
        check(cudaMemcpyAsync(one.address, one.wanted.data(), size, cudaMemcpyDefault, stream.value()));
        live.emplace(step, std::move(one));
        if (step % 3 == 2)
            drop(std::next(live.begin(), static_cast<long>(generator() % live.size()))->first);
    }
    std::size_t left = live.size();
    while (!live.empty())
        drop(live.begin()->first);
    return left;
}

std::string streams(resource const &on)
{
    std::size_t left = churn(on, 1, 90);
    std::string seen = "\"left\": " + std::to_string(left);

    if (on.largest > 2 * MIB) {
        rmm::cuda_stream stream;
        auto wanted = content(MIB, 5);
        rmm::device_buffer buffer(wanted.data(), wanted.size(), stream, *on.ref);
        for (std::size_t size = 2 * MIB; size <= 16 * MIB; size *= 2)
            buffer.resize(size, stream);
        buffer.resize(MIB, stream);
        buffer.shrink_to_fit(stream);
        rmm::device_buffer copy(buffer, stream, *on.ref);
        bytes_t back(MIB);
        check(cudaMemcpyAsync(back.data(), copy.data(), MIB, cudaMemcpyDefault, stream.value()));
        stream.synchronize();
        expect(back == wanted, "bytes of a device_buffer");
        seen += ", \"capacity\": " + std::to_string(copy.capacity());
    }
    return seen;
}

std::string threads(resource const &on)
{
    std::vector<std::thread> running;
    std::vector<std::string> failures(4);
    for (unsigned i = 0; i < 4; i++)
        running.emplace_back([&, i] {
            try {
                churn(on, 10 + i, 40);
            } catch (std::exception const &error) {
                failures[i] = error.what();
            }
        });
    for (auto &thread : running)
        thread.join();
    for (auto const &failure : failures)
        expect(failure.empty(), failure);
    return "\"threads\": 4";
}

// Takes memory until there is none, gives half back, goes on.
std::string limit(resource const &on)
{
    std::size_t size = on.largest < 2 * MIB + 1 ? on.largest : 46 * MIB;
    std::map<unsigned, void *> live;
    rmm::cuda_stream own;
    rmm::cuda_stream_view stream = own.view(); // the interface converts views only
    std::string seen;
    auto ref = *on.ref;

    for (unsigned turn = 0, step = 0; turn < 3; turn++) {
        bool refused = false;
        while (!refused) {
            expect(live.size() < 1000, "no limit");
            try {
                live[step] = ref.allocate_async(size, stream);
                auto wanted = content(MIB, step++);
                check(cudaMemcpyAsync(live[step - 1], wanted.data(), MIB, cudaMemcpyDefault, stream.value()));
                stream.synchronize();
            } catch (rmm::bad_alloc const &) {
                refused = true;
                live.erase(step);
                cudaGetLastError();
            }
        }
        seen += (turn ? ", \"turn " : "\"turn ") + std::to_string(turn) + "\": " + std::to_string(live.size());
        bool drop = false;
        for (auto next = live.begin(); next != live.end(); drop = !drop) {
            bytes_t back(MIB);
            check(cudaMemcpyAsync(back.data(), next->second, MIB, cudaMemcpyDefault, stream.value()));
            stream.synchronize();
            expect(back == content(MIB, next->first), "bytes of block " + std::to_string(next->first));
            if (drop)
                ref.deallocate_async(next->second, size, stream);
            next = drop ? live.erase(next) : std::next(next);
        }
    }
    for (auto const &one : live)
        ref.deallocate_async(one.second, size, stream);
    stream.synchronize();
    return seen;
}

} // namespace

int main(int argc, char **argv)
{
    std::map<std::string, std::function<std::string(resource const &)>> areas{
        {"streams", streams}, {"threads", threads}, {"limit", limit}};
    std::string seen, counts, failure;

    if (argc != 2 || !areas.count(argv[1]) || !getenv("RMM_RESOURCE") || !getenv("PROGRAM_RESULT"))
        return 2;
    try {
        // Plain memory beside it keeps its bytes.
        auto wanted = content(MIB, 77);
        bytes_t back(MIB);
        void *beside;
        check(cudaMalloc(&beside, MIB));
        check(cudaMemcpy(beside, wanted.data(), MIB, cudaMemcpyDefault));
        {
            resource on = make(getenv("RMM_RESOURCE"));
            seen = areas[argv[1]](on);
            if (on.cuda_calls)
                counts = "\"cudaMalloc\": " + std::to_string(on.cuda_calls->get_allocations_counter().total + 1);
        }
        check(cudaMemcpy(back.data(), beside, MIB, cudaMemcpyDefault));
        check(cudaFree(beside));
        expect(back == wanted, "bytes of plain memory");
    } catch (std::exception const &error) {
        failure = error.what();
    }
    FILE *out = fopen(getenv("PROGRAM_RESULT"), "w");
    if (!out)
        return 1;
    fprintf(out, "{\"seen\": {%s}, \"counts\": {%s}", seen.c_str(), counts.c_str());
    if (!failure.empty()) {
        for (char &letter : failure)
            letter = letter == '"' || letter == '\\' || letter < ' ' ? ' ' : letter;
        fprintf(out, ", \"error\": \"%s\"", failure.c_str());
    }
    fprintf(out, "}\n");
    return fclose(out) != 0;
}
