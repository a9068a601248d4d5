/* Host memory that can be allocated without swapping: the least of MemAvailable and the memory left
 * by the limits of the process's memory control groups (containers, batch jobs).
 *
 * Both layouts of the group files are read. v2: "0::PATH" in /proc/self/cgroup and memory.max; v1:
 * "N:memory:PATH" and memory.limit_in_bytes. The limits of a group and of all groups above it
 * count. A group's inactive page cache counts as free. Thread-safe. */
#ifndef GC_MEMINFO_H
#define GC_MEMINFO_H

#include <stdint.h>

/* 0 where the kernel does not report it. */
uint64_t gc_meminfo_available_bytes(void);
/* As above, from the files in /proc and /sys below the folder `root`. */
uint64_t gc_meminfo_available_under(const char *root);

#endif
