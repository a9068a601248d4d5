/* The driver as the demo's programs open it: by hand, as programs do that must start where there is
 * none. They know nothing of the library. */
#ifndef DEMO_DRIVER_H
#define DEMO_DRIVER_H

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program with a line where the call failed. */
static void driver_check(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s: CUDA error %d\n", what, (int)result);
        exit(EXIT_FAILURE);
    }
}

static void *driver_open(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(EXIT_FAILURE);
    }
    return driver;
}

/* *function becomes the driver's entry point of that name. */
static void driver_find(void *driver, const char *name, void *function)
{
    void *address = dlsym(driver, name);
    if (address == NULL) {
        fprintf(stderr, "libcuda.so.1 has no %s\n", name);
        exit(EXIT_FAILURE);
    }
    *(void **)function = address;
}

#endif
