/* A client of the driver for the tests of the tool: allocates MiB sizes given as arguments, frees
 * the first one, prints each allocation's code, exits with 5. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    unsigned long long address[16] = {0};
    void *context = NULL;
    int device = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL)
        return 9;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*get_device)(int *, int) = (int (*)(int *, int))dlsym(driver, "cuDeviceGet");
    int (*create)(void **, unsigned, int) =
        (int (*)(void **, unsigned, int))dlsym(driver, "cuCtxCreate_v2");
    int (*allocate)(unsigned long long *, size_t) =
        (int (*)(unsigned long long *, size_t))dlsym(driver, "cuMemAlloc_v2");
    int (*release_memory)(unsigned long long) =
        (int (*)(unsigned long long))dlsym(driver, "cuMemFree_v2");
    const int code = init(0);
    printf("init %d\n", code);
    if (code != 0)
        return 3;
    if (get_device(&device, 0) != 0 || create(&context, 0, device) != 0)
        return 4;
    for (int i = 1; i < argc && i < 16; i++)
        printf("alloc %d\n", allocate(&address[i], (size_t)strtoul(argv[i], NULL, 10) << 20));
    printf("free %d\n", release_memory(address[1]));
    return 5;
}
