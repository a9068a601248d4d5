/* link: -l:libcuda.so.1 */
/* Memory taken and freed so that it fragments, against a limit: usage: fragment STEPS SEED
 *
 * Alternating sizes with every second block freed, pins between them that are never freed, sizes
 * that grow, and all of it at random. With P the 2 MiB pages that fit at the start and L those that
 * live blocks need (each rounded up), a request of no more than P - L pages must succeed, whatever
 * lies where. Blocks are marked at both ends and looked at before they go. Prints `requests N tight
 * N refused N`: tight are those for all, or nearly all, that was left. */
#include "tests/preload/progs/program.h"

#include <stdbool.h>
#include <stdint.h>

#define PAGE ((size_t)2 << 20)
#define BLOCKS_MAX 512

struct block {
    CUdeviceptr address;
    size_t bytes;
    unsigned mark;
    bool is_pin;
};

static struct block blocks[BLOCKS_MAX];
static unsigned block_count, next_mark = 1;
static size_t pages_in_all, pages_live;
static unsigned long request_count, tight_count, refused_count;
static uint64_t state;

static size_t pick(size_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (size_t)(state >> 11) % below;
}

static size_t pages_of(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE;
}

/* Rounded up, live blocks may seem to need more than there is. */
static size_t pages_left(void)
{
    return pages_live < pages_in_all ? pages_in_all - pages_live : 0;
}

static void mark(const struct block *block)
{
    CHECK(cuMemsetD8(block->address, (unsigned char)block->mark, 1));
    CHECK(cuMemsetD8(block->address + block->bytes - 1, (unsigned char)block->mark, 1));
    CHECK(cuMemsetD8(block->address + block->bytes / 2, (unsigned char)block->mark, 1));
}

static void look(const struct block *block)
{
    unsigned char bytes[3];

    CHECK(cuMemcpyDtoH(&bytes[0], block->address, 1));
    CHECK(cuMemcpyDtoH(&bytes[1], block->address + block->bytes - 1, 1));
    CHECK(cuMemcpyDtoH(&bytes[2], block->address + block->bytes / 2, 1));
    for (unsigned i = 0; i < 3; i++)
        if (bytes[i] != (unsigned char)block->mark) {
            fprintf(stderr, "a block of %zu bytes does not hold what it was marked with\n",
                    block->bytes);
            exit(EXIT_FAILURE);
        }
}

/* True if there was memory for it; there must be if it fits by pages. */
static bool take(size_t bytes, bool is_pin)
{
    struct block *block = &blocks[block_count];
    const size_t pages = pages_of(bytes), left = pages_left();

    if (block_count == BLOCKS_MAX)
        return false;
    request_count++;
    tight_count += pages <= left && left - pages < 2;
    const CUresult result = cuMemAlloc(&block->address, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        refused_count++;
        if (pages > left)
            return false;
        fprintf(stderr,
                "%zu bytes (%zu pages) were refused with %zu of %zu pages left, %u blocks\n", bytes,
                pages, left, pages_in_all, block_count);
        exit(EXIT_FAILURE);
    }
    CHECK(result);
    block->bytes = bytes;
    block->mark = next_mark++;
    block->is_pin = is_pin;
    mark(block);
    pages_live += pages;
    block_count++;
    return true;
}

static void release_memory(unsigned index)
{
    look(&blocks[index]);
    CHECK(cuMemFree(blocks[index].address));
    pages_live -= pages_of(blocks[index].bytes);
    blocks[index] = blocks[--block_count];
}

static void free_all_but_pins(void)
{
    for (unsigned i = block_count; i-- > 0;)
        if (!blocks[i].is_pin)
            release_memory(i);
}

/* Fills everything with blocks of two sizes by turns, frees one kind, asks for all that is left. */
static void alternate(size_t small, size_t large)
{
    for (unsigned i = 0; take(i % 2 == 0 ? small : large, false); i++)
        ;
    for (unsigned i = block_count; i-- > 0;)
        if (!blocks[i].is_pin && blocks[i].bytes == small)
            release_memory(i);
    take(pages_left() * PAGE, false);
    free_all_but_pins();
}

/* Sizes that grow a little each time, as sequence lengths do; the last one is always in the way. */
static void grow(void)
{
    for (size_t bytes = PAGE; pages_of(bytes) < pages_in_all / 3; bytes += bytes / 7 + 4096) {
        const unsigned before = block_count;
        if (!take(bytes, false) || before == 0)
            continue;
        const unsigned old = before - 1;
        if (!blocks[old].is_pin)
            release_memory(old);
    }
    free_all_but_pins();
}

static void at_random(unsigned long steps)
{
    for (unsigned long i = 0; i < steps; i++) {
        const size_t left = pages_left();
        const size_t choice = pick(10);
        if (choice < 4 || left == 0) {
            for (size_t n = 1 + pick(6); n > 0 && block_count > 0; n--) {
                const unsigned index = (unsigned)pick(block_count);
                if (!blocks[index].is_pin)
                    release_memory(index);
            }
        } else if (choice < 6) {
            take(left * PAGE - pick(4096), false); /* all of it */
        } else if (choice < 8) {
            take(1 + pick((size_t)1 << pick(27)), false);
        } else {
            take(PAGE + pick(8 * PAGE), false);
        }
    }
    free_all_but_pins();
}

int main(int argument_count, char **arguments)
{
    size_t total;

    if (argument_count != 3)
        return 2;
    state = strtoull(arguments[2], NULL, 10) * 2654435761u + 88172645463325252u;
    program_start();
    CHECK(cuMemGetInfo(&pages_in_all, &total));
    pages_in_all /= PAGE;
    alternate(PAGE, 3 * PAGE);
    grow();
    for (unsigned i = 0; i < 8; i++) { /* pins: one in each part of what lies between */
        take(5 * PAGE + PAGE / 2, false);
        take(i % 2 == 0 ? 100 : PAGE / 2 + 100, true);
    }
    free_all_but_pins();
    alternate(3 * PAGE / 2, 5 * PAGE);
    alternate(PAGE / 4, 2 * PAGE);
    grow();
    at_random(strtoul(arguments[1], NULL, 10));
    for (unsigned i = block_count; i-- > 0;)
        release_memory(i);
    printf("requests %lu tight %lu refused %lu\n", request_count, tight_count, refused_count);
    return EXIT_SUCCESS;
}
