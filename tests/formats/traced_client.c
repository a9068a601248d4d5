/* A client of the driver whose trace is worth exporting: STEPS allocations and frees of many sizes
 * on each of two devices, managed memory among them, which no pool has; the last ones are never
 * freed. usage: traced_client [STEPS [SEED]] */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define SLOTS 96
#define KEPT 5

typedef unsigned long long pointer;

static struct {
    int (*init)(unsigned);
    int (*get_device)(int *, int);
    int (*create)(void **, unsigned, int);
    int (*set_current)(void *);
    int (*allocate)(pointer *, size_t);
    int (*allocate_managed)(pointer *, size_t, unsigned);
    int (*release_memory)(pointer);
} driver;

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static int load(void)
{
    static const char *const names[] = {"cuInit",          "cuDeviceGet",   "cuCtxCreate_v2",
                                        "cuCtxSetCurrent", "cuMemAlloc_v2", "cuMemAllocManaged",
                                        "cuMemFree_v2"};
    void *functions[sizeof(names) / sizeof(names[0])];
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        return 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        functions[i] = dlsym(library, names[i]);
        if (functions[i] == NULL)
            return 0;
    }
    driver.init = (int (*)(unsigned))functions[0];
    driver.get_device = (int (*)(int *, int))functions[1];
    driver.create = (int (*)(void **, unsigned, int))functions[2];
    driver.set_current = (int (*)(void *))functions[3];
    driver.allocate = (int (*)(pointer *, size_t))functions[4];
    driver.allocate_managed = (int (*)(pointer *, size_t, unsigned))functions[5];
    driver.release_memory = (int (*)(pointer))functions[6];
    return 1;
}

/* Sizes of all magnitudes up to 32 MiB; one in 16 is managed. */
static void step(pointer *slot, uint64_t random)
{
    const size_t bytes = 1 + (size_t)(random >> 8) % ((size_t)1 << (8 + random % 18));
    if (*slot != 0) {
        (void)driver.release_memory(*slot);
        *slot = 0;
    } else if (random >> 60 == 0) {
        (void)driver.allocate_managed(slot, bytes, 1);
    } else {
        (void)driver.allocate(slot, bytes);
    }
}

int main(int argc, char **argv)
{
    const long steps = argc > 1 ? strtol(argv[1], NULL, 10) : 2000;
    uint64_t random = argc > 2 ? strtoull(argv[2], NULL, 10) : 42;
    static pointer slots[2][SLOTS];
    void *contexts[2];
    if (!load() || driver.init(0) != 0)
        return 2;
    for (int i = 0; i < 2; i++) {
        int device;
        if (driver.get_device(&device, i) != 0 || driver.create(&contexts[i], 0, device) != 0)
            return 3;
    }
    for (long i = 0; i < steps; i++) {
        const int device = i % 4 == 3; /* the first has most */
        (void)driver.set_current(contexts[device]);
        step(&slots[device][next_random(&random) % SLOTS], next_random(&random));
    }
    for (int device = 0; device < 2; device++) {
        (void)driver.set_current(contexts[device]);
        for (int i = 0; i < SLOTS - KEPT; i++) {
            if (slots[device][i] != 0)
                (void)driver.release_memory(slots[device][i]);
        }
    }
    return 0;
}
