/* link: -ldl */
/* Watches by NVML what all processes hold of the shared device, without a context of its own, about
 * every half millisecond: swap_observer. A line of input, a line of output: "bound BYTES": more
 * than that is a fault from now on; "look": `used N most N samples N above N excess N at_us N`,
 * the most and the samples since the last look, how many samples of all were above the bound then
 * in force, and by how much at most, and when. Ends with its input. */
#include "tests/simcuda/nvml/nvml_abi.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_NS 500000

static struct {
    __typeof__(&nvmlInit_v2) init;
    __typeof__(&nvmlDeviceGetHandleByIndex_v2) handle;
    __typeof__(&nvmlDeviceGetMemoryInfo) memory;
} nvml;

static void find(void *library, const char *name, void *function)
{
    void *address = library != NULL ? dlsym(library, name) : NULL;
    if (address == NULL) {
        fprintf(stderr, "NVML has no %s\n", name);
        exit(EXIT_FAILURE);
    }
    *(void **)function = address;
}

static uint64_t used_bytes(nvmlDevice_t device)
{
    nvmlMemory_t memory;
    if (nvml.memory(device, &memory) != NVML_SUCCESS) {
        fprintf(stderr, "NVML does not answer\n");
        exit(EXIT_FAILURE);
    }
    return memory.used;
}

int main(void)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    uint64_t most = 0, samples = 0, above = 0, bound = UINT64_MAX, excess = 0, at_us = 0;
    nvmlDevice_t device;
    char line[64];
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    find(library, "nvmlInit_v2", &nvml.init);
    find(library, "nvmlDeviceGetHandleByIndex_v2", &nvml.handle);
    find(library, "nvmlDeviceGetMemoryInfo", &nvml.memory);
    if (nvml.init() != NVML_SUCCESS || nvml.handle(0, &device) != NVML_SUCCESS)
        return EXIT_FAILURE;
    setvbuf(stdin, NULL, _IONBF, 0); /* poll must see what stdio has not read */
    for (;; nanosleep(&pause, NULL)) {
        const uint64_t used = used_bytes(device);
        most = used > most ? used : most;
        above += used > bound;
        if (used > bound && used - bound > excess) {
            struct timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
            excess = used - bound;
            at_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
        }
        samples++;
        if (poll(&input, 1, 0) == 0)
            continue;
        if (fgets(line, sizeof(line), stdin) == NULL)
            return EXIT_SUCCESS;
        if (strncmp(line, "bound ", 6) == 0)
            bound = strtoull(line + 6, NULL, 10);
        printf("used %llu most %llu samples %llu above %llu excess %llu at_us %llu\n",
               (unsigned long long)used, (unsigned long long)most, (unsigned long long)samples,
               (unsigned long long)above, (unsigned long long)excess, (unsigned long long)at_us);
        fflush(stdout);
        if (strncmp(line, "look", 4) == 0)
            most = samples = 0;
    }
}
