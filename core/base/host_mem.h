/* Host memory for bookkeeping, straight from the kernel: libc's allocator is never entered from a
 * wrapped call. Counts what is taken, so that the report can say what the library itself costs. */
#ifndef GC_HOST_MEM_H
#define GC_HOST_MEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gc_host_mem {
    atomic_uint_fast64_t bytes;
};

/* Zeroed pages for at least `bytes`; NULL if there are none. Thread-safe, as are all here. */
void *gc_host_mem_map(struct gc_host_mem *host, uint64_t bytes);
void gc_host_mem_unmap(struct gc_host_mem *host, void *memory, uint64_t bytes);

/* Address space that reads as zero and costs memory only where it is written. Not counted: its
 * owner calls gc_host_mem_count for the pages it writes. */
void *gc_host_mem_reserve(uint64_t bytes);
void gc_host_mem_unreserve(void *memory, uint64_t bytes);
/* Whole pages of what was reserved read as zero again and cost nothing until they are written.
 * False, with nothing changed: the kernel's pages are others, or are locked in memory. */
bool gc_host_mem_discard(void *memory, uint64_t bytes);
void gc_host_mem_count(struct gc_host_mem *host, uint64_t bytes);
void gc_host_mem_uncount(struct gc_host_mem *host, uint64_t bytes);
/* What the host could give without swapping, as the kernel says, and the control groups of the
 * process leave (host_room.c); 0 where the kernel does not say. */
uint64_t gc_meminfo_available_bytes(void);
/* The same of the files in /proc and /sys below a folder. */
uint64_t gc_meminfo_available_under(const char *root);
uint64_t gc_host_mem_bytes(const struct gc_host_mem *host);

#endif
