/* A process that gives memory to another one, or opens it, at the commands of test_share.py. It
 * finds the calls as libraries do, so that its executable imports none of them.
 *
 * A line is a command with numbers of blocks; a line answers it. Results are the driver's codes. */
/* link: -l:libcuda.so.1 */
#define _GNU_SOURCE
#include "tests/preload/progs/program.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCKS 1024
#define LINE 512

static struct block {
    CUdeviceptr address;
    size_t bytes;
} blocks[BLOCKS];

static __typeof__(cuIpcGetMemHandle) *get_handle;
static __typeof__(cuIpcOpenMemHandle_v2) *open_handle;
static __typeof__(cuIpcCloseMemHandle) *close_handle;

static void find_calls(void)
{
    get_handle = (__typeof__(get_handle))dlsym(RTLD_DEFAULT, "cuIpcGetMemHandle");
    open_handle = (__typeof__(open_handle))dlsym(RTLD_DEFAULT, "cuIpcOpenMemHandle_v2");
    close_handle = (__typeof__(close_handle))dlsym(RTLD_DEFAULT, "cuIpcCloseMemHandle");
}

static void answer_handle(CUdeviceptr address)
{
    CUipcMemHandle handle;
    const CUresult result = get_handle(&handle, address);

    printf("%d ", (int)result);
    for (size_t i = 0; result == CUDA_SUCCESS && i < sizeof(handle); i++)
        printf("%02x", (unsigned char)handle.reserved[i]);
    printf("\n");
}

static void answer_open(struct block *block, const char *text)
{
    CUipcMemHandle handle;
    CUdeviceptr address = 0, base = 0;
    size_t bytes = 0;

    for (size_t i = 0; i < sizeof(handle); i++)
        sscanf(text + 2 * i, "%2hhx", (unsigned char *)&handle.reserved[i]);
    const CUresult result = open_handle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result == CUDA_SUCCESS) {
        CHECK(cuMemGetAddressRange(&base, &bytes, address));
        *block = (struct block){address, bytes};
    }
    printf("%d %d %zu\n", (int)result, base == address, bytes);
}

/* Whether the block's bytes from `offset` on all have the value. */
static void answer_check(const struct block *block, size_t offset, unsigned value)
{
    const size_t bytes = block->bytes - offset;
    unsigned char *copy = malloc(bytes);
    bool is_same = cuMemcpyDtoH(copy, block->address + offset, bytes) == CUDA_SUCCESS;

    for (size_t i = 0; is_same && i < bytes; i++)
        is_same = copy[i] == value;
    free(copy);
    printf("%d\n", is_same);
}

/* What libraries ask before they choose a path. */
static void answer_story(CUdeviceptr address)
{
    unsigned is_legacy = 7;
    uint64_t types = 7;
    CUmemGenericAllocationHandle handle = 0;
    CUcontext context = NULL, current;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                   CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                   CU_POINTER_ATTRIBUTE_CONTEXT};
    void *values[] = {&is_legacy, &types, &context};

    CHECK(cuPointerGetAttributes(3, names, values, address));
    CHECK(cuCtxGetCurrent(&current));
    CUresult result = cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address);
    printf("own %d legacy %u types %llu retain %d\n", context == current, is_legacy & 0xff,
           (unsigned long long)types, (int)result);
}

/* A child that makes no call, until it is killed. `is_short`: it ends at once. */
static void answer_fork(bool is_short)
{
    const pid_t child = fork();

    if (child == 0 && is_short)
        exit(EXIT_SUCCESS);
    while (child == 0)
        pause();
    printf("%d\n", (int)child);
}

/* As programs do that close descriptors which they do not know. */
static void close_sockets(void)
{
    struct stat facts;

    for (int fd = STDERR_FILENO + 1; fd < 1024; fd++)
        if (fstat(fd, &facts) == 0 && S_ISSOCK(facts.st_mode))
            close(fd);
}

static bool obey(const char *line)
{
    char command[16] = "", text[LINE] = "";
    unsigned long long number = 0, first = 0, second = 0;
    const unsigned sync = 1;

    sscanf(line, "%15s %llu %s", command, &number, text);
    sscanf(line, "%*s %*u %llu %llu", &first, &second);
    struct block *block = &blocks[number % BLOCKS];
    if (strcmp(command, "alloc") == 0) { /* number, bytes */
        const CUresult result = cuMemAlloc(&block->address, first);
        block->bytes = first;
        printf("%d %llu\n", (int)result, (unsigned long long)block->address);
    } else if (strcmp(command, "free") == 0) {
        printf("%d\n", (int)cuMemFree(block->address));
    } else if (strcmp(command, "fill") == 0) { /* number, offset, value */
        CHECK(cuMemsetD8(block->address + first, (unsigned char)second, block->bytes - first));
        printf("%d\n", (int)cuCtxSynchronize());
    } else if (strcmp(command, "check") == 0) { /* number, offset, value */
        answer_check(block, first, (unsigned)second);
    } else if (strcmp(command, "handle") == 0) { /* number, offset */
        answer_handle(block->address + first);
    } else if (strcmp(command, "open") == 0) { /* number, handle */
        answer_open(block, text);
    } else if (strcmp(command, "close") == 0) {
        printf("%d\n", (int)close_handle(block->address));
    } else if (strcmp(command, "address") == 0) {
        printf("%llu\n", (unsigned long long)block->address);
    } else if (strcmp(command, "range") == 0) {
        CUdeviceptr base;
        size_t bytes;
        printf("%d\n", (int)cuMemGetAddressRange(&base, &bytes, block->address));
    } else if (strcmp(command, "story") == 0) {
        answer_story(block->address);
    } else if (strcmp(command, "sync") == 0) {
        printf("%d\n",
               (int)cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block->address));
    } else if (strcmp(command, "device") == 0) {
        CUcontext context;
        CHECK(cuDevicePrimaryCtxRetain(&context, (CUdevice)number));
        printf("%d\n", (int)cuCtxSetCurrent(context));
    } else if (strcmp(command, "reset") == 0) {
        CHECK(cuDevicePrimaryCtxReset(0));
        program_start();
        printf("0\n");
    } else if (strcmp(command, "exec") == 0) {
        printf("0\n");
        (void)execl("/bin/sleep", "sleep", "1000", NULL);
    } else if (strcmp(command, "deaf") == 0) {
        close_sockets();
        printf("0\n");
    } else if (strcmp(command, "fork") == 0) {
        answer_fork(number != 0);
    } else {
        return false;
    }
    return true;
}

int main(void)
{
    char line[LINE];

    setvbuf(stdout, NULL, _IOLBF, 0);
    program_start();
    find_calls();
    printf("ready\n");
    while (fgets(line, sizeof(line), stdin) != NULL && obey(line))
        ;
    return EXIT_SUCCESS;
}
