/* Host memory for bookkeeping, mapped from the kernel: a wrapped call never enters libc's
 * allocator. Counts the mapped bytes, so that the report can show the cost of the library
 * itself. */
#ifndef GC_HOST_MEM_H
#define GC_HOST_MEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gc_host_mem {
    atomic_uint_fast64_t bytes;
};

/* Zeroed pages for at least `bytes`; NULL if the kernel has none. Thread-safe, as every function
 * here. */
void *gc_host_mem_map(struct gc_host_mem *host, uint64_t bytes);
void gc_host_mem_unmap(struct gc_host_mem *host, void *memory, uint64_t bytes);

#define GC_HOST_MEM_HUGE_BYTES (UINT64_C(2) << 20)

/* Memory for content of the device, to be unmapped as above: `bytes`, a multiple of
 * GC_HOST_MEM_HUGE_BYTES, aligned to that, in huge pages where the kernel has them. A forked child
 * and a core dump lack it. */
void *gc_host_mem_map_huge(struct gc_host_mem *host, uint64_t bytes);

/* Address space that reads as zero and costs memory only where it is written. Not counted: its
 * owner calls gc_host_mem_count for the pages it writes. */
void *gc_host_mem_reserve(uint64_t bytes);
void gc_host_mem_unreserve(void *memory, uint64_t bytes);
/* Whole pages of reserved memory read as zero again and cost nothing until they are written. False,
 * with nothing changed: the kernel's page size is another one, or the pages are locked in
 * memory. */
bool gc_host_mem_discard(void *memory, uint64_t bytes);
void gc_host_mem_count(struct gc_host_mem *host, uint64_t bytes);
void gc_host_mem_uncount(struct gc_host_mem *host, uint64_t bytes);
uint64_t gc_host_mem_bytes(const struct gc_host_mem *host);

#endif
