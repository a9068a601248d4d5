/* link: -l:libcuda.so.1 */
/* SYNC_MEMOPS on memory that is served from the cache: whose it is, how long it holds and what it
 * leaves behind. usage: sync_memops ROUNDS
 *        sync_memops tokens: the attribute after a request for tokens
 *
 * Prints what plain CUDA answers, too. The mark cuDriverGetVersion in the driver's journal stands
 * before and after a copy that is made when no block has the flag any more. */
#include "tests/preload/progs/program.h"

#include <string.h>
#include <unistd.h>

#define BYTES (1 << 16)
#define GROWTH_PAGES_MAX 512 /* of address space and of memory */

static unsigned flag_of(CUdeviceptr block)
{
    unsigned flag = 7;
    CHECK(cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    return flag;
}

static unsigned flag_in_list(CUdeviceptr block)
{
    CUpointer_attribute which = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    unsigned flag = 7;
    void *data = &flag;
    CHECK(cuPointerGetAttributes(1, &which, &data, block));
    return flag;
}

static void set(CUdeviceptr block, unsigned flag)
{
    CHECK(cuPointerSetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
}

static void print_result(const char *what, CUdeviceptr block)
{
    printf("%s %u %u\n", what, flag_of(block), flag_in_list(block));
}

static long pages_in_use(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1)
        exit(EXIT_FAILURE);
    fclose(file);
    return pages;
}

static void run_rounds(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        CUdeviceptr block = program_alloc(BYTES);
        if (flag_of(block) != 0) {
            printf("round %u: a new block has it\n", i);
            exit(EXIT_FAILURE);
        }
        set(block, 1);
        CHECK(cuMemFree(block));
    }
}

static void print_tokens(void)
{
    CUdeviceptr blocks[2] = {program_alloc(BYTES), program_alloc(BYTES)};
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;

    CHECK(cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, blocks[0] + 5));
    print_result("tokens", blocks[0]);
    print_result("its neighbour", blocks[1]);
    set(blocks[0], 0);
    print_result("taken back", blocks[0]);
    CHECK(cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, blocks[0]));
    CHECK(cuMemFree(blocks[0]));
    print_result("after a free", program_alloc(BYTES));
}

static void mark(void)
{
    int version;
    CHECK(cuDriverGetVersion(&version));
}

int main(int argument_count, char **arguments)
{
    const unsigned rounds = argument_count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    CUdeviceptr blocks[3];
    char bytes[64] = {0};
    int version;
    program_start();
    if (argument_count > 1 && strcmp(arguments[1], "tokens") == 0) {
        print_tokens();
        return EXIT_SUCCESS;
    }
    for (unsigned i = 0; i < 3; i++) {
        blocks[i] = program_alloc(BYTES);
        print_result("new", blocks[i]);
    }
    set(blocks[0], 1);
    set(blocks[1], 1);
    print_result("set", blocks[0] + 5);
    print_result("neighbour", blocks[2]);
    set(blocks[1], 0);
    print_result("taken back", blocks[1]);
    print_result("still set", blocks[0]);
    CHECK(cuMemcpyHtoD(blocks[0], bytes, sizeof(bytes)));
    CHECK(cuMemFree(blocks[0]));
    for (unsigned i = 0; i < 3; i++)
        print_result("after a free", program_alloc(BYTES));
    printf("no value %d\n",
           (int)cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, blocks[1]));
    printf("another attribute %d\n",
           (int)cuPointerSetAttribute(&version, CU_POINTER_ATTRIBUTE_BUFFER_ID, blocks[1]));
    run_rounds(rounds / 10);
    const long before = pages_in_use();
    run_rounds(rounds);
    if (pages_in_use() - before > GROWTH_PAGES_MAX)
        printf("%u rounds left %ld pages behind\n", rounds, pages_in_use() - before);
    mark();
    CHECK(cuMemcpyDtoD(blocks[2], blocks[1], BYTES));
    mark();
    return EXIT_SUCCESS;
}
