/* The address space of the simulated devices.
 *
 * Windows are reserved from the kernel once and never unmapped, so an address that was device
 * memory never comes from the host's own allocator. One sparse memory file backs each window, and
 * nothing of it exists before it is touched. Ranges are taken by best fit in units of SIM_PAGE.
 * Every function: sim_memory_lock held. */
#include "memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define WINDOW_BYTES (UINT64_C(256) << 30)
#define LOW_WINDOW_BYTES (UINT64_C(512) << 20) /* MAP_32BIT has 1 GiB, not all of it free */

struct window {
    struct sim_node node;
    struct sim_ranges free;
    struct window *next;
    int fd;
    bool is_low;
};

static struct sim_tree window_tree;
static struct window *windows;

static struct window *find_window(uint64_t address)
{
    struct sim_node *node = sim_tree_find(&window_tree, address);

    return node == NULL ? NULL : SIM_CONTAINER(node, struct window, node);
}

static void *host(uint64_t address)
{
    return (void *)(uintptr_t)
        address; /* NOLINT(performance-no-int-to-ptr): device addresses are host ones */
}

/* Reserves addresses whose start is a multiple of SIM_PAGE, cutting what is too much at both ends.
 */
static bool reserve_addresses(uint64_t bytes, bool is_low, int fd, uint64_t *base)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (is_low ? MAP_32BIT : 0);
    char *raw = mmap(NULL, bytes + SIM_PAGE, PROT_NONE, flags, -1, 0);
    uint64_t start, lead;

    if (raw == MAP_FAILED)
        return false;
    start = sim_round_up((uint64_t)(uintptr_t)raw, SIM_PAGE);
    lead = start - (uint64_t)(uintptr_t)raw;
    if (lead != 0)
        munmap(raw, lead);
    if (lead != SIM_PAGE)
        munmap(host(start + bytes), SIM_PAGE - lead);
    if (mmap(host(start), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) ==
        MAP_FAILED) {
        munmap(host(start), bytes);
        return false;
    }
    madvise(host(start), bytes, MADV_DONTDUMP);
    *base = start;
    return true;
}

int sim_space_open_file(const char *name, uint64_t bytes)
{
    static pthread_mutex_t limit_lock = PTHREAD_MUTEX_INITIALIZER;
    struct rlimit before = {RLIM_INFINITY, RLIM_INFINITY};
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    pthread_mutex_lock(&limit_lock);
    getrlimit(RLIMIT_FSIZE, &before);
    bool is_low = before.rlim_cur < bytes;
    if (is_low)
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){before.rlim_max, before.rlim_max});
    int result = ftruncate(fd, (off_t)bytes);
    if (is_low)
        setrlimit(RLIMIT_FSIZE, &before);
    pthread_mutex_unlock(&limit_lock);
    if (result == 0)
        return fd;
    close(fd);
    return -1;
}

static struct window *open_window(uint64_t bytes, bool is_low)
{
    struct window *window = calloc(1, sizeof *window);
    uint64_t base = 0;

    if (window == NULL)
        return NULL;
    window->fd = sim_space_open_file("simcuda", bytes);
    if (window->fd < 0)
        goto fail_window;
    if (!reserve_addresses(bytes, is_low, window->fd, &base))
        goto fail_fd;
    window->is_low = is_low;
    window->node.start = base;
    window->node.end = base + bytes;
    if (!sim_ranges_give(&window->free, &base, &bytes))
        goto fail_map;
    sim_tree_insert(&window_tree, &window->node);
    window->next = windows;
    windows = window;
    return window;

fail_map:
    munmap(host(window->node.start), window->node.end - window->node.start);
fail_fd:
    close(window->fd);
fail_window:
    free(window);
    return NULL;
}

CUresult sim_space_take(uint64_t bytes, uint64_t alignment, bool is_low, uint64_t *address)
{
    uint64_t least = is_low ? LOW_WINDOW_BYTES : WINDOW_BYTES;
    uint64_t wanted;
    struct window *window;

    if (alignment < SIM_PAGE)
        alignment = SIM_PAGE;
    for (window = windows; window != NULL; window = window->next)
        if (window->is_low == is_low && sim_ranges_take(&window->free, bytes, alignment, address))
            return CUDA_SUCCESS;
    /* A new window starts at a multiple of SIM_PAGE only, so a wider alignment needs room to spare.
     */
    wanted = sim_round_up(bytes, SIM_PAGE);
    if (wanted == 0 || wanted > INT64_MAX - alignment)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (alignment > SIM_PAGE)
        wanted += alignment;
    if (wanted < least)
        wanted = least;
    else if (is_low)
        return CUDA_ERROR_OUT_OF_MEMORY;
    window = open_window(wanted, is_low);
    if (window == NULL || !sim_ranges_take(&window->free, bytes, alignment, address))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

bool sim_space_take_at(uint64_t address, uint64_t bytes)
{
    struct window *window = find_window(address);

    return window != NULL && window->node.end - address >= bytes &&
           sim_ranges_take_at(&window->free, address, bytes);
}

void sim_space_give(uint64_t address, uint64_t bytes)
{
    struct window *window = find_window(address);

    if (window != NULL)
        sim_ranges_give(&window->free, &address, &bytes);
}

CUresult sim_space_protect(uint64_t address, uint64_t bytes, int protection)
{
    if (mprotect(host(address), bytes, protection) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY; /* the kernel's limit of mappings */
    return CUDA_SUCCESS;
}

CUresult sim_space_commit(uint64_t address, uint64_t bytes)
{
    return sim_space_protect(address, bytes, PROT_READ | PROT_WRITE);
}

void sim_space_discard(uint64_t address, uint64_t bytes)
{
    struct window *window = find_window(address);

    if (window != NULL)
        fallocate(window->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)(address - window->node.start), (off_t)bytes);
}

void sim_space_decommit(uint64_t address, uint64_t bytes)
{
    mprotect(host(address), bytes, PROT_NONE);
    sim_space_discard(address, bytes);
}

CUresult sim_space_map(uint64_t address, uint64_t bytes, int fd, uint64_t offset, int protection)
{
    void *mapped = mmap(host(address), bytes, protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                        fd, (off_t)offset);

    return mapped == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

void sim_space_unmap(uint64_t address, uint64_t bytes)
{
    struct window *window = find_window(address);

    if (window == NULL)
        return;
    if (mmap(host(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, window->fd,
             (off_t)(address - window->node.start)) == MAP_FAILED)
        mprotect(host(address), bytes, PROT_NONE); /* out of mappings: at least nobody reads it */
    else
        madvise(host(address), bytes, MADV_DONTDUMP); /* as what lies beside: one mapping again */
}

bool sim_space_contains(uint64_t address)
{
    return find_window(address) != NULL;
}

bool sim_space_backing(uint64_t address, int *fd, uint64_t *offset)
{
    struct window *window = find_window(address);

    if (window == NULL)
        return false;
    *fd = window->fd;
    *offset = address - window->node.start;
    return true;
}
