/* NVML whose load takes half a second, between the relocation of its data and that of its calls. In
 * the place of libnvidia-ml.so.1. */
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#pragma GCC visibility push(default)

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory);
int half_nvml_choose(void);

atomic_int half_nvml_calls;

static int chosen(void)
{
    return 0;
}

/* Called while its symbol is relocated; it may use nothing that is. */
static int (*choose(void))(void)
{
#ifdef __x86_64__
    const struct timespec a_while = {.tv_nsec = 500000000};
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(35L), "D"(&a_while), "S"(0L) /* nanosleep */
                     : "rcx", "r11", "memory");
#else
    for (volatile long i = 0; i < 500000000; i = i + 1)
        ;
#endif
    return chosen;
}

int half_nvml_choose(void) __attribute__((ifunc("choose")));
int (*const half_nvml_pointer)(void) = half_nvml_choose;

int nvmlInit_v2(void)
{
    atomic_fetch_add(&half_nvml_calls, 1);
    return getpid() == 0; /* a call through the table */
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    (void)uuid;
    *device = &half_nvml_calls;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    (void)device, (void)memory;
    return 3; /* not supported */
}
