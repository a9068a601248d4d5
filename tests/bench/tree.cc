// See tree.h. Sizes as PyTorch's caching allocator has them: multiples of 512 bytes; up to 1 MiB
// from segments of 2 MiB, up to 10 MiB from segments of 20 MiB, above that from their own, in whole
// 2 MiB.
#include "tests/bench/tree.h"

#include <array>
#include <cstdint>
#include <mutex>
#include <set>
#include <unordered_map>

namespace
{

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kGranule = 512;
constexpr size_t kSmallMax = kMiB;
constexpr size_t kShards = 67;

struct Pool;

struct Block {
    size_t bytes;
    uintptr_t address;
    Pool *pool;
    Block *previous = nullptr; // in its segment
    Block *next = nullptr;
    bool is_live = false;
};

struct BySizeThenAddress {
    bool operator()(const Block *a, const Block *b) const
    {
        return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
    }
};

struct Pool {
    std::set<Block *, BySizeThenAddress> free_blocks;
    bool is_small;
};

// Pointer to block: found without the allocator's mutex.
class LiveMap
{
  public:
    void add(Block *block)
    {
        Shard &shard = shard_of(block->address);
        std::lock_guard<std::mutex> guard(shard.mutex);
        shard.blocks[block->address] = block;
    }
    Block *remove(uintptr_t address)
    {
        Shard &shard = shard_of(address);
        std::lock_guard<std::mutex> guard(shard.mutex);
        const auto found = shard.blocks.find(address);
        if (found == shard.blocks.end())
            return nullptr;
        Block *block = found->second;
        shard.blocks.erase(found);
        return block;
    }

  private:
    struct alignas(64) Shard {
        std::mutex mutex;
        std::unordered_map<uintptr_t, Block *> blocks;
    };
    Shard &shard_of(uintptr_t address)
    {
        return shards_[(address / kGranule) % kShards];
    }
    std::array<Shard, kShards> shards_;
};

class Allocator
{
  public:
    void *alloc(size_t bytes)
    {
        const size_t rounded = round_up(bytes > 0 ? bytes : 1, kGranule);
        Block *block;
        {
            std::lock_guard<std::recursive_mutex> guard(mutex_);
            Pool &pool = rounded <= kSmallMax ? small_ : large_;
            block = take(pool, rounded);
            split(pool, block, rounded);
            block->is_live = true;
        }
        live_.add(block);
        return reinterpret_cast<void *>(block->address);
    }

    void free(void *address)
    {
        Block *block = live_.remove(reinterpret_cast<uintptr_t>(address));
        if (block == nullptr)
            return;
        std::lock_guard<std::recursive_mutex> guard(mutex_);
        block->is_live = false;
        merge(block, block->previous);
        merge(block, block->next);
        block->pool->free_blocks.insert(block);
    }

  private:
    static size_t round_up(size_t value, size_t unit)
    {
        return (value + unit - 1) / unit * unit;
    }

    Block *take(Pool &pool, size_t bytes)
    {
        Block key{bytes, 0, nullptr};
        const auto found = pool.free_blocks.lower_bound(&key);
        if (found != pool.free_blocks.end()) {
            Block *block = *found;
            pool.free_blocks.erase(found);
            return block;
        }
        const size_t segment = pool.is_small       ? 2 * kMiB
                               : bytes < 10 * kMiB ? 20 * kMiB
                                                   : round_up(bytes, 2 * kMiB);
        Block *block = new Block{segment, next_address_, &pool};
        next_address_ += segment;
        return block;
    }

    static void split(Pool &pool, Block *block, size_t bytes)
    {
        const size_t rest = block->bytes - bytes;
        if (pool.is_small ? rest < kGranule : rest <= kMiB)
            return;
        Block *remainder = new Block{rest, block->address + bytes, &pool};
        remainder->previous = block;
        remainder->next = block->next;
        if (block->next != nullptr)
            block->next->previous = remainder;
        block->next = remainder;
        block->bytes = bytes;
        pool.free_blocks.insert(remainder);
    }

    // Takes a free neighbour into the block.
    static void merge(Block *block, Block *neighbour)
    {
        if (neighbour == nullptr || neighbour->is_live)
            return;
        block->pool->free_blocks.erase(neighbour);
        if (neighbour == block->previous) {
            block->address = neighbour->address;
            block->previous = neighbour->previous;
            if (block->previous != nullptr)
                block->previous->next = block;
        } else {
            block->next = neighbour->next;
            if (block->next != nullptr)
                block->next->previous = block;
        }
        block->bytes += neighbour->bytes;
        delete neighbour;
    }

    std::recursive_mutex mutex_;
    Pool small_{{}, true};
    Pool large_{{}, false};
    uintptr_t next_address_ = uintptr_t{1} << 40;
    LiveMap live_;
};

Allocator allocator;

} // namespace

void *tree_alloc(size_t bytes)
{
    return allocator.alloc(bytes);
}

void tree_free(void *address)
{
    allocator.free(address);
}
