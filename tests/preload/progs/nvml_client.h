/* How much memory every device has, by NVML and by CUDA: what nvml_linked.c and nvml_dlopen.c
 * share, which differ in how they reach NVML's functions (`nvml`).
 *
 * usage: nvml_… [cuda MIB | hold MIB | race MIB | plain]. Lines are WHEN UUID CALL TOTAL FREE USED
 * RESERVED, as far as the call has them, in NVML's order. `cuda`: before, while and after MIB are
 * held on the device that CUDA numbers 0. `hold`: MIB are held there until the process is killed.
 * `race`: threads ask NVML over and over while CUDA starts and MIB come and go; prints the totals
 * they saw. `plain`: CUDA is not called. Fails where NVML's own sums do not hold. */
#ifndef NVML_CLIENT_H
#define NVML_CLIENT_H

#include "tests/preload/progs/program.h"
#include "tests/simcuda/nvml/nvml_abi.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define DEVICES_MAX 4
#define ENDS_WITHIN_MS 2000

struct nvml {
    __typeof__(&nvmlInit_v2) init;
    __typeof__(&nvmlShutdown) shutdown;
    __typeof__(&nvmlDeviceGetCount_v2) count;
    __typeof__(&nvmlDeviceGetHandleByIndex_v2) handle;
    __typeof__(&nvmlDeviceGetUUID) uuid;
    __typeof__(&nvmlDeviceGetMemoryInfo) memory;
    __typeof__(&nvmlDeviceGetMemoryInfo_v2) memory_v2;
};

static CUcontext contexts[DEVICES_MAX];

static void require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    exit(EXIT_FAILURE);
}

static void print_nvml(const struct nvml *nvml, const char *when)
{
    nvmlMemory_v2_t second = {.version = NVML_MEMORY_V2};
    nvmlMemory_t first;
    nvmlDevice_t device;
    unsigned count;
    char uuid[96];

    require(nvml->count(&count) == NVML_SUCCESS, "no count");
    for (unsigned i = 0; i < count; i++) {
        require(nvml->handle(i, &device) == NVML_SUCCESS, "no handle");
        require(nvml->uuid(device, uuid, sizeof(uuid)) == NVML_SUCCESS, "no UUID");
        require(nvml->memory(device, &first) == NVML_SUCCESS, "no memory info");
        require(nvml->memory_v2(device, &second) == NVML_SUCCESS, "no memory info, v2");
        require(first.total == first.free + first.used, "v1: total is not the sum");
        require(second.total == second.reserved + second.free + second.used,
                "v2: total is not the sum");
        printf("%s %s nvml1 %llu %llu %llu\n", when, uuid, first.total, first.free, first.used);
        printf("%s %s nvml2 %llu %llu %llu %llu\n", when, uuid, second.total, second.free,
               second.used, second.reserved);
    }
}

static void print_cuda(const char *when)
{
    size_t available, total;
    CUuuid uuid;
    char text[48];
    int count;

    CHECK(cuDeviceGetCount(&count));
    for (int i = 0; i < count && i < DEVICES_MAX; i++) {
        CHECK(cuDeviceGetUuid(&uuid, i));
        strcpy(text, "GPU-");
        for (int j = 0; j < 16; j++)
            sprintf(text + strlen(text), "%s%02x", j == 4 || j == 6 || j == 8 || j == 10 ? "-" : "",
                    (unsigned char)uuid.bytes[j]);
        if (contexts[i] == NULL)
            CHECK(cuDevicePrimaryCtxRetain(&contexts[i], i));
        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(cuMemGetInfo(&available, &total));
        printf("%s %s cuMemGetInfo %zu %zu\n", when, text, total, available);
        CHECK(cuDeviceTotalMem(&total, i));
        printf("%s %s cuDeviceTotalMem %zu\n", when, text, total);
    }
}

struct racer {
    pthread_t thread;
    const struct nvml *nvml;
    atomic_int *is_over;
    unsigned long long least, most;
};

static void *race(void *argument)
{
    struct racer *racer = argument;
    nvmlMemory_v2_t second = {.version = NVML_MEMORY_V2};
    nvmlMemory_t first;
    nvmlDevice_t device;

    require(racer->nvml->handle(0, &device) == NVML_SUCCESS, "no handle");
    racer->least = ~0ull;
    do {
        require(racer->nvml->memory(device, &first) == NVML_SUCCESS, "no memory info");
        require(racer->nvml->memory_v2(device, &second) == NVML_SUCCESS, "no memory info, v2");
        require(first.total == second.total && first.free <= first.total,
                "figures do not fit together");
        require(second.total == second.reserved + second.free + second.used,
                "v2: total is not the sum");
        racer->least = first.total < racer->least ? first.total : racer->least;
        racer->most = first.total > racer->most ? first.total : racer->most;
    } while (!atomic_load(racer->is_over));
    return NULL;
}

static void race_with_cuda(const struct nvml *nvml, size_t bytes)
{
    struct racer racers[3] = {{.nvml = nvml}, {.nvml = nvml}, {.nvml = nvml}};
    atomic_int is_over = 0;
    CUdeviceptr block;

    for (int i = 0; i < 3; i++) {
        racers[i].is_over = &is_over;
        require(pthread_create(&racers[i].thread, NULL, race, &racers[i]) == 0, "no thread");
    }
    program_start();
    for (int i = 0; i < 2000; i++) {
        block = program_alloc(bytes);
        CHECK(cuMemFree(block));
    }
    atomic_store(&is_over, 1);
    for (int i = 0; i < 3; i++) {
        require(pthread_join(racers[i].thread, NULL) == 0, "no end");
        printf("race %llu %llu\n", racers[i].least, racers[i].most);
    }
}

static int nvml_client_main(const struct nvml *nvml, int argc, char **argv)
{
    nvmlMemory_t memory;
    nvmlDevice_t device;
    CUdeviceptr block;

    if (argc > 2 && strcmp(argv[1], "hold") == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* the test ends, however it ends */
        program_start();
        program_alloc(strtoull(argv[2], NULL, 10) << 20);
        puts("holding");
        fflush(stdout);
        for (;;)
            pause();
    }
    require(nvml->init() == NVML_SUCCESS, "NVML does not start");
    if (argc > 2 && strcmp(argv[1], "cuda") == 0) {
        print_nvml(nvml, "early");
        CHECK(cuInit(0));
        print_nvml(nvml, "started");
        print_cuda("empty");
        print_nvml(nvml, "empty");
        CHECK(cuCtxSetCurrent(contexts[0]));
        block = program_alloc(strtoull(argv[2], NULL, 10) << 20);
        print_cuda("held");
        print_nvml(nvml, "held");
        CHECK(cuCtxSetCurrent(contexts[0]));
        CHECK(cuMemFree(block));
        print_cuda("freed");
        print_nvml(nvml, "freed");
    } else if (argc > 2 && strcmp(argv[1], "race") == 0) {
        race_with_cuda(nvml, strtoull(argv[2], NULL, 10) << 20);
    } else {
        print_nvml(nvml, "plain");
    }
    require(nvml->handle(0, &device) == NVML_SUCCESS, "no handle");
    require(nvml->shutdown() == NVML_SUCCESS, "NVML does not end");
    /* NVML ends with the last of its users, which the library's thread may be for a moment. */
    const uint64_t start = program_now_ms();
    while (nvml->memory(device, &memory) != NVML_ERROR_UNINITIALIZED) {
        require(program_now_ms() - start < ENDS_WITHIN_MS, "NVML has not ended");
        usleep(1000);
    }
    return 0;
}

#endif
