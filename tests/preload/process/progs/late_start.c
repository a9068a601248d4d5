/* link: -l:libcuda.so.1 */
/* A program that changes its working folder (CHDIR) or removes a file (UNLINK) before its first
 * CUDA call. */
#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    const char *folder = getenv("CHDIR");
    const char *file = getenv("UNLINK");
    CUdevice device;
    CUcontext context;
    CUdeviceptr block;
    if ((folder != NULL && chdir(folder) != 0) || (file != NULL && unlink(file) != 0)) {
        perror("late_start");
        return 2;
    }
    return cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
           cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
           cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&block, 4096) != CUDA_SUCCESS ||
           cuMemFree(block) != CUDA_SUCCESS;
}
