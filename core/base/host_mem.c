#include "core/base/host_mem.h"

#include "core/base/bits.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t round_up_to_pages(uint64_t bytes)
{
    uint64_t rounded;
    return gc_round_up_u64(bytes, (uint64_t)sysconf(_SC_PAGESIZE), &rounded) ? rounded : 0;
}

/* Keeps errno: it is the program's. */
static void *map_pages(uint64_t bytes, int flags)
{
    const int saved_errno = errno;
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    errno = saved_errno;
    return memory == MAP_FAILED ? NULL : memory;
}

static void unmap_pages(void *memory, uint64_t bytes)
{
    const int saved_errno = errno;
    munmap(memory, bytes);
    errno = saved_errno;
}

void *gc_host_mem_map(struct gc_host_mem *host, uint64_t bytes)
{
    const uint64_t rounded = round_up_to_pages(bytes);
    void *memory = rounded == 0 ? NULL : map_pages(rounded, 0);
    if (memory != NULL)
        gc_host_mem_count(host, rounded);
    return memory;
}

void *gc_host_mem_map_huge(struct gc_host_mem *host, uint64_t bytes)
{
    const int saved_errno = errno;
    uint64_t whole;
    char *memory = gc_add_u64(bytes, GC_HOST_MEM_HUGE_BYTES, &whole) ? map_pages(whole, 0) : NULL;
    if (memory == NULL)
        return NULL;
    const uint64_t before = -(uintptr_t)memory % GC_HOST_MEM_HUGE_BYTES;
    if (before > 0)
        munmap(memory, before);
    munmap(memory + before + bytes, GC_HOST_MEM_HUGE_BYTES - before);
    memory += before;
    /* Advice: a kernel without such pages, or that does not know it, gives plain memory. */
    madvise(memory, bytes, MADV_HUGEPAGE);
    madvise(memory, bytes, MADV_DONTFORK);
    madvise(memory, bytes, MADV_DONTDUMP);
    errno = saved_errno;
    gc_host_mem_count(host, bytes);
    return memory;
}

void gc_host_mem_unmap(struct gc_host_mem *host, void *memory, uint64_t bytes)
{
    const uint64_t rounded = round_up_to_pages(bytes);
    unmap_pages(memory, rounded);
    atomic_fetch_sub_explicit(&host->bytes, rounded, memory_order_relaxed);
}

void *gc_host_mem_reserve(uint64_t bytes)
{
    void *memory = map_pages(bytes, MAP_NORESERVE);
    if (memory != NULL) {
        /* A huge page behind one written entry would cost 512 times the counted bytes. */
        const int saved_errno = errno;
        madvise(memory, bytes, MADV_NOHUGEPAGE);
        errno = saved_errno;
    }
    return memory;
}

void gc_host_mem_unreserve(void *memory, uint64_t bytes)
{
    unmap_pages(memory, bytes);
}

bool gc_host_mem_discard(void *memory, uint64_t bytes)
{
    const int saved_errno = errno;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const bool is_done = (uintptr_t)memory % page == 0 && bytes % page == 0 &&
                         madvise(memory, bytes, MADV_DONTNEED) == 0;
    errno = saved_errno;
    return is_done;
}

void gc_host_mem_count(struct gc_host_mem *host, uint64_t bytes)
{
    atomic_fetch_add_explicit(&host->bytes, bytes, memory_order_relaxed);
}

void gc_host_mem_uncount(struct gc_host_mem *host, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&host->bytes, bytes, memory_order_relaxed);
}

uint64_t gc_host_mem_bytes(const struct gc_host_mem *host)
{
    return atomic_load_explicit(&host->bytes, memory_order_relaxed);
}
