/* Copies that leave holes alone. Memory that was never written has no pages: files know where they
 * have data (SEEK_DATA), and of private anonymous memory /proc/self/pagemap does. Pages of zeros
 * that the source lacks are taken from the destination too (PUNCH_HOLE, MADV_DONTNEED) instead of
 * being written; what is no whole page there is filled with zeros. So a copy costs what it moves,
 * and not what it spans. Where the memory is of another kind, all of it is copied. */
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORTH_BYTES (UINT64_C(64) << 10) /* smaller rows are copied as they are */
#define ENTRIES 512                      /* of the pagemap, read at once */
#define PRESENT (UINT64_C(1) << 63)
#define SWAPPED (UINT64_C(1) << 62)

/* What is behind some addresses. */
struct backing {
    enum { OTHER, IN_FILE, ANONYMOUS } kind;
    int fd;
    uint64_t offset; /* in the file */
    uint64_t bytes;  /* for which this holds */
};

static uint64_t page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static void *host(uint64_t address)
{
    return (void *)(uintptr_t)address; /* NOLINT: device addresses are host ones */
}

/* ---- which memory it is ---- */

/* A pool for other processes has a file of its own, and imported memory another process's. */
static bool is_in_window(const struct sim_block *block)
{
    return block->kind == SIM_PLAIN || block->kind == SIM_MANAGED || block->kind == SIM_GRAPH ||
           (block->kind == SIM_POOLED && sim_pool_handle_types(block->pool) == 0);
}

/* sim_memory_lock held, and sim_use_lock: nothing is unmapped. */
static struct backing find_backing_locked(uint64_t address, uint64_t bytes)
{
    struct backing found = {.kind = OTHER, .fd = -1, .bytes = bytes};
    struct sim_block *block = sim_block_find(address);
    struct sim_mapping_info info;
    uint64_t end = address + bytes;

    if (block != NULL) {
        if (block->node.end < end)
            end = block->node.end;
        if (is_in_window(block) && sim_space_backing(address, &found.fd, &found.offset))
            found.kind = IN_FILE;
        else if (block->kind == SIM_HOST || (block->kind == SIM_REGISTERED && block->is_anonymous))
            found.kind = ANONYMOUS;
    } else if (sim_mapping_query(address, 0, &info) && info.is_mapped) {
        if (info.start + info.bytes < end)
            end = info.start + info.bytes;
        sim_physical_backing(info.physical, &found.fd, &found.offset);
        found.offset += address - info.start;
        found.kind = IN_FILE;
    }
    found.bytes = end - address;
    return found;
}

static struct backing find_backing(uint64_t address, uint64_t bytes)
{
    struct backing found;

    pthread_mutex_lock(&sim_memory_lock);
    found = find_backing_locked(address, bytes);
    pthread_mutex_unlock(&sim_memory_lock);
    return found;
}

bool sim_sparse_is_anonymous(uint64_t address, uint64_t bytes)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    uint64_t at = address;
    char line[512];

    while (maps != NULL && at < address + bytes && fgets(line, sizeof line, maps) != NULL) {
        unsigned long long start, end, inode;
        char rights[8];

        if (sscanf(line, "%llx-%llx %7s %*x %*x:%*x %llu", &start, &end, rights, &inode) != 4 ||
            end <= at)
            continue;
        if (start > at || rights[3] != 'p' || inode != 0)
            break;
        at = end;
    }
    if (maps != NULL)
        fclose(maps);
    return at >= address + bytes;
}

/* ---- holes ---- */

/* The run of data, or of a hole, at the beginning of the range; its length, at most `bytes`. */
static uint64_t run_in_file(const struct backing *backing, uint64_t bytes, bool *has_data)
{
    const off_t at = (off_t)backing->offset;
    const off_t data = lseek(backing->fd, at, SEEK_DATA);
    off_t end = at + (off_t)bytes;

    *has_data = data == at || (data < 0 && errno != ENXIO);
    if (data > at && data < end)
        end = data;
    if (data == at) {
        const off_t hole = lseek(backing->fd, at, SEEK_HOLE);
        if (hole > at && hole < end)
            end = hole;
    }
    return (uint64_t)(end - at);
}

static uint64_t run_in_pagemap(int pagemap, uint64_t address, uint64_t bytes, bool *has_data)
{
    const uint64_t page = page_bytes(), first = address / page;
    uint64_t count = (address + bytes - 1) / page - first + 1, same = 1;
    uint64_t entries[ENTRIES];

    if (count > ENTRIES)
        count = ENTRIES;
    *has_data = true;
    if (pread(pagemap, entries, count * sizeof entries[0], (off_t)(first * sizeof entries[0])) !=
        (ssize_t)(count * sizeof entries[0]))
        return bytes;
    *has_data = (entries[0] & (PRESENT | SWAPPED)) != 0;
    while (same < count && ((entries[same] & (PRESENT | SWAPPED)) != 0) == *has_data)
        same++;
    same = (first + same) * page - address;
    return same < bytes ? same : bytes;
}

/* Takes whole pages from the destination. */
static bool discard(const struct backing *to, uint64_t address, uint64_t bytes, uint64_t offset)
{
    switch (to->kind) {
    case IN_FILE:
        return fallocate(to->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                         (off_t)bytes) == 0;
    case ANONYMOUS:
        return madvise(host(address), bytes, MADV_DONTNEED) == 0;
    default:
        return false;
    }
}

/* Makes the range read as zeros; `done`: of the backing's bytes, those before it. */
static void clear(const struct backing *to, uint64_t address, uint64_t bytes, uint64_t done)
{
    const uint64_t page = page_bytes();
    const uint64_t head = -address % page;
    const uint64_t inner = head < bytes ? (bytes - head) / page * page : 0;

    if (inner == 0 || !discard(to, address + head, inner, to->offset + done + head)) {
        memset(host(address), 0, bytes);
        return;
    }
    memset(host(address), 0, head);
    memset(host(address + head + inner), 0, bytes - head - inner);
}

/* ---- a row ---- */

static bool overlaps(uint64_t a, uint64_t b, uint64_t bytes)
{
    return a < b + bytes && b < a + bytes;
}

/* Both backings hold for all of the bytes. */
static void move_part(uint64_t to, uint64_t from, uint64_t bytes, const struct backing *at_to,
                      const struct backing *at_from, int pagemap)
{
    for (uint64_t done = 0, run; done < bytes; done += run) {
        struct backing rest = *at_from;
        bool has_data;

        rest.offset += done;
        run = rest.kind == IN_FILE ? run_in_file(&rest, bytes - done, &has_data)
                                   : run_in_pagemap(pagemap, from + done, bytes - done, &has_data);
        if (has_data)
            memmove(host(to + done), host(from + done), run);
        else
            clear(at_to, to + done, run, done);
    }
}

void sim_sparse_move(uint64_t to, uint64_t from, uint64_t bytes)
{
    int pagemap = -1;

    if (bytes < WORTH_BYTES || overlaps(to, from, bytes)) {
        memmove(host(to), host(from), bytes);
        return;
    }
    for (uint64_t done = 0, part; done < bytes; done += part) {
        const struct backing at_from = find_backing(from + done, bytes - done);
        const struct backing at_to = find_backing(to + done, bytes - done);

        part = at_from.bytes < at_to.bytes ? at_from.bytes : at_to.bytes;
        if (at_from.kind == ANONYMOUS && pagemap < 0)
            pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        if (at_from.kind == OTHER || (at_from.kind == ANONYMOUS && pagemap < 0))
            memmove(host(to + done), host(from + done), part);
        else
            move_part(to + done, from + done, part, &at_to, &at_from, pagemap);
    }
    if (pagemap >= 0)
        close(pagemap);
}
