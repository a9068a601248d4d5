/* A tool that patches functions, as UCX's memory hooks do (ucm_bistro_patch): the function's first
 * instructions move to a place of the tool's, a jump to the tool's function takes theirs. Only
 * instructions move that UCX's relocator knows (ucm_bistro_relocate_one; here the part of it that
 * functions in practice begin with).
 *
 * usage: patched check            prints each function of UCX's list whose beginning cannot be
 * moved patched runtime|driver   calls of cudaMalloc and cudaFree, or of the driver's names, with
 *                                 both of the driver's functions patched from the half on */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* link: -lcuda -lcudart */

int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int cuMemAlloc_v2(uint64_t *pointer, size_t bytes);
int cuMemFree_v2(uint64_t pointer);

#define FAR_JUMP_BYTES 12

static const char *const hooked[] = {
    "cuMemAlloc",         "cuMemAlloc_v2",   "cuMemAllocManaged",       "cuMemAllocPitch",
    "cuMemAllocPitch_v2", "cuMemMap",        "cuMemAllocAsync",         "cuMemAllocFromPoolAsync",
    "cuMemFree",          "cuMemFree_v2",    "cuMemFreeHost",           "cuMemUnmap",
    "cuMemFreeAsync",     "cudaFree",        "cudaFreeAsync",           "cudaFreeHost",
    "cudaMalloc",         "cudaMallocAsync", "cudaMallocFromPoolAsync", "cudaMallocManaged",
    "cudaMallocPitch"};
static int alloc_count, free_count;
static int (*next_alloc)(uint64_t *, size_t);
static int (*next_free)(uint64_t);

/* The bytes of an instruction that can be moved; 0: it cannot. */
static size_t movable_bytes(const uint8_t *code)
{
    if ((code[0] & 0xf0) == 0x50) /* push %reg */
        return 1;
    if (code[0] == 0x41 && (code[1] & 0xf0) == 0x50)
        return 2;
    if ((code[0] & 0xf8) == 0xb8) /* mov $imm32, %reg */
        return 5;
    if (code[0] == 0x48 && code[1] == 0x83 && code[2] == 0xec) /* sub $imm8, %rsp */
        return 4;
    if (code[0] == 0x48 && code[1] == 0x81 && code[2] == 0xec) /* sub $imm32, %rsp */
        return 7;
    if (code[0] == 0x48 && code[1] == 0x89 && code[2] == 0xe5) /* mov %rsp, %rbp */
        return 3;
    return 0;
}

/* Bytes of whole instructions that make room for a jump; 0: some cannot be moved. */
static size_t room(const uint8_t *code)
{
    size_t bytes = 0;

    while (bytes < FAR_JUMP_BYTES) {
        size_t next = movable_bytes(code + bytes);
        if (next == 0)
            return 0;
        bytes += next;
    }
    return bytes;
}

static void put_jump(uint8_t *at, const void *target)
{
    static const uint8_t load[] = {0x48, 0xb8}, jump[] = {0xff, 0xe0};

    memcpy(at, load, 2);
    memcpy(at + 2, &target, 8);
    memcpy(at + 10, jump, 2);
}

/* Returns the function as it was; NULL: it cannot be patched. */
static void *patch(const char *name, const void *hook)
{
    static const uint8_t indirect[] = {0xff, 0x25, 0, 0, 0, 0};
    uint8_t *code = dlsym(RTLD_DEFAULT, name);
    size_t bytes = room(code);
    uint8_t *moved =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const uint8_t *back = code + bytes;

    if (bytes == 0 || moved == MAP_FAILED)
        return NULL;
    memcpy(moved, code, bytes);
    memcpy(moved + bytes, indirect, sizeof(indirect)); /* keeps all registers */
    memcpy(moved + bytes + sizeof(indirect), &back, sizeof(back));
    uint8_t *page = (uint8_t *)((uintptr_t)code & ~(uintptr_t)4095);
    if (mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
        return NULL;
    put_jump(code, hook);
    mprotect(page, 8192, PROT_READ | PROT_EXEC);
    return moved;
}

static int hook_alloc(uint64_t *pointer, size_t bytes)
{
    alloc_count++;
    return next_alloc(pointer, bytes);
}

static int hook_free(uint64_t pointer)
{
    free_count++;
    return next_free(pointer);
}

static int check(void)
{
    for (size_t i = 0; i < sizeof(hooked) / sizeof(hooked[0]); i++) {
        const uint8_t *code = dlsym(RTLD_DEFAULT, hooked[i]);
        if (code == NULL || room(code) == 0)
            printf("%s\n", hooked[i]);
    }
    return 0;
}

static int call(int is_runtime)
{
    void *pointer = NULL;
    uint64_t block = 0;

    if (is_runtime)
        return (cudaMalloc(&pointer, 4096) != 0) + (cudaFree(pointer) != 0);
    return (cuMemAlloc_v2(&block, 4096) != 0) + (cuMemFree_v2(block) != 0);
}

int main(int argc, char **argv)
{
    const int is_runtime = argc > 1 && strcmp(argv[1], "runtime") == 0;
    int wrong = 0;

    if (argc > 1 && strcmp(argv[1], "check") == 0)
        return check();
    wrong += call(1); /* a context */
    for (int i = 0; i < 10; i++)
        wrong += call(is_runtime);
    *(void **)&next_alloc = patch("cuMemAlloc_v2", (const void *)hook_alloc);
    *(void **)&next_free = patch("cuMemFree_v2", (const void *)hook_free);
    if (next_alloc == NULL || next_free == NULL)
        return printf("not patched\n"), 1;
    for (int i = 0; i < 10; i++)
        wrong += call(is_runtime);
    printf("wrong %d, seen %d and %d\n", wrong, alloc_count, free_count);
    return 0;
}
