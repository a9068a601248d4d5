/* An allocator of the program's for PyTorch (CUDAPluggableAllocator): the runtime's own calls. */
#include <stddef.h>
#include <sys/types.h>

int cudaMalloc(void **address, size_t bytes);
int cudaFree(void *address);
void *plain_malloc(ssize_t bytes, int device, void *stream);
void plain_free(void *address, ssize_t bytes, int device, void *stream);

void *plain_malloc(ssize_t bytes, int device, void *stream)
{
    void *address = NULL;

    (void)device, (void)stream; /* the caller has set the device */
    return cudaMalloc(&address, (size_t)bytes) == 0 ? address : NULL;
}

void plain_free(void *address, ssize_t bytes, int device, void *stream)
{
    (void)bytes, (void)device, (void)stream;
    (void)cudaFree(address);
}
