/* Two processes and one device: a block that the first exports by a handle, the second opens, reads
 * and writes. The parent never touches CUDA, so each child has the library to itself. */
#include "tests/gpu/gpu.h"

#include <sys/wait.h>

#define BLOCK (8 * MIB)

struct message {
    CUresult code;
    CUipcMemHandle handle;
};

static void tell(int fd, const void *bytes, size_t count)
{
    if (write(fd, bytes, count) != (ssize_t)count)
        exit(EXIT_FAILURE);
}

static bool hear(int fd, void *bytes, size_t count)
{
    return read(fd, bytes, count) == (ssize_t)count;
}

static int export_block(int to_other, int from_other, uint64_t bytes)
{
    struct message message;
    CUdeviceptr block;
    uint32_t value = 0;
    char done;

    gpu_open();
    memset(&message, 0, sizeof(message));
    CU(cuMemAlloc, &block, bytes);
    CU(cuMemsetD8, block, 0x11, bytes);
    CU(cuCtxSynchronize);
    message.code = cu.cuIpcGetMemHandle(&message.handle, block);
    row(message.code, "code", "export.%s", size_name(bytes));
    tell(to_other, &message, sizeof(message));
    if (message.code == CUDA_SUCCESS && hear(from_other, &done, 1)) {
        CU(cuMemcpyDtoH, &value, block + bytes - 4, sizeof(value));
        row(value == 0x22222222, "yes", "export.%s.sees_write", size_name(bytes));
    }
    row_code(cu.cuMemFree(block), "export.free");
    return EXIT_SUCCESS;
}

static int open_block(int to_other, int from_other, uint64_t bytes)
{
    struct message message;
    CUdeviceptr block = 0;
    uint32_t value = 0;

    gpu_open();
    if (!hear(from_other, &message, sizeof(message)) || message.code != CUDA_SUCCESS)
        return EXIT_SUCCESS;
    CUresult code =
        cu.cuIpcOpenMemHandle(&block, message.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    row(code, "code", "open.%s", size_name(bytes));
    if (code != CUDA_SUCCESS)
        return EXIT_SUCCESS;
    CU(cuMemcpyDtoH, &value, block, sizeof(value));
    row(value == 0x11111111, "yes", "open.%s.reads", size_name(bytes));
    CU(cuMemsetD8, block, 0x22, bytes);
    CU(cuCtxSynchronize);
    CU(cuIpcCloseMemHandle, block);
    tell(to_other, "d", 1);
    return EXIT_SUCCESS;
}

static void run(uint64_t bytes)
{
    int there[2], back[2];
    pid_t children[2];
    static const char *const names[] = {"export", "open"};

    if (pipe(there) != 0 || pipe(back) != 0)
        exit(EXIT_FAILURE);
    fflush(stdout);
    for (unsigned i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            close(i == 0 ? back[1] : there[1]);
            exit(i == 0 ? export_block(there[1], back[0], bytes)
                        : open_block(back[1], there[0], bytes));
        }
    }
    close(there[1]);
    close(back[1]);
    for (unsigned i = 0; i < 2; i++) {
        int status = 0;
        waitpid(children[i], &status, 0);
        row(status, "status", "%s.%s.status", names[i], size_name(bytes));
    }
}

int main(void)
{
    run(512);
    run(BLOCK);
    return EXIT_SUCCESS;
}
