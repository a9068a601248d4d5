/* One of the programs of `make demo-swap`: a server with a model in device memory, whose requests
 * arrive at random. It knows nothing of the library.
 *
 *     swap_server NAME MIB SEED SECONDS MEAN_MS     loads a model of MIB, serves for SECONDS
 *     swap_server --free                            prints how many bytes the device has free
 *
 * A model is layers of LAYER_BYTES, each filled with a value of its own. A request has a number x;
 * its answer is the sum of the layers' values times x, read from the device. Some requests teach:
 * they fill a layer with a new value. The host knows what every answer must be. Lines: "ready AT";
 * "out of memory: HELD of MIB MiB"; "answer N arrived AT began AT ended AT right|WRONG"; "end
 * right N wrong N". AT is in microseconds of CLOCK_MONOTONIC. Exit status 1: no memory, or a wrong
 * answer. */
#include "demo/driver.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LAYER_BYTES ((size_t)16 << 20)
#define LAYERS_MAX 16384
#define ACTIVATION_BYTES ((size_t)1 << 20)
#define PASSES 20 /* of work on the activations for a request */
#define BURST 6   /* requests that arrive close together */
#define TEACH 3   /* one request of so many */

static CUresult (*init)(unsigned flags);
static CUresult (*primary_retain)(CUcontext *context, CUdevice device);
static CUresult (*set_current)(CUcontext context);
static CUresult (*mem_info)(size_t *available, size_t *total);
static CUresult (*mem_alloc)(CUdeviceptr *block, size_t bytes);
static CUresult (*mem_free)(CUdeviceptr block);
static CUresult (*stream_create)(CUstream *stream, unsigned flags);
static CUresult (*stream_synchronize)(CUstream stream);
static CUresult (*memset_async)(CUdeviceptr block, unsigned value, size_t count, CUstream stream);
static CUresult (*memcpy_async)(void *to, CUdeviceptr from, size_t bytes, CUstream stream);

static CUdeviceptr layers[LAYERS_MAX], activation;
static uint32_t values[LAYERS_MAX], seen[LAYERS_MAX];
static size_t layer_count;
static CUstream stream;
static uint64_t random_state;

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void wait_until(uint64_t us)
{
    const uint64_t now = now_us();
    if (us <= now)
        return;
    struct timespec pause = {(time_t)((us - now) / 1000000), (long)((us - now) % 1000000) * 1000};
    while (nanosleep(&pause, &pause) != 0)
        ;
}

/* splitmix64 (Vigna 2015) */
static uint64_t draw(void)
{
    uint64_t value = random_state += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* Exponentially distributed, as the gaps of independent arrivals are. */
static uint64_t draw_gap_us(double mean_ms)
{
    const double uniform = ((double)(draw() >> 11) + 1) / 9007199254740993.0;
    return (uint64_t)(-log(uniform) * mean_ms * 1000);
}

static void start(void)
{
    CUcontext context;
    void *driver = driver_open();
    driver_find(driver, "cuInit", &init);
    driver_find(driver, "cuDevicePrimaryCtxRetain", &primary_retain);
    driver_find(driver, "cuCtxSetCurrent", &set_current);
    driver_find(driver, "cuMemGetInfo_v2", &mem_info);
    driver_find(driver, "cuMemAlloc_v2", &mem_alloc);
    driver_find(driver, "cuMemFree_v2", &mem_free);
    driver_find(driver, "cuStreamCreate", &stream_create);
    driver_find(driver, "cuStreamSynchronize", &stream_synchronize);
    driver_find(driver, "cuMemsetD32Async", &memset_async);
    driver_find(driver, "cuMemcpyDtoHAsync_v2", &memcpy_async);
    driver_check(init(0), "cuInit");
    driver_check(primary_retain(&context, 0), "cuDevicePrimaryCtxRetain");
    driver_check(set_current(context), "cuCtxSetCurrent");
    driver_check(stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

static void teach(size_t layer)
{
    values[layer] = (uint32_t)draw();
    driver_check(memset_async(layers[layer], values[layer], LAYER_BYTES / sizeof(uint32_t), stream),
                 "cuMemsetD32Async");
}

/* False: there is no room. */
static int load(size_t mib)
{
    CUresult result = mem_alloc(&activation, ACTIVATION_BYTES);
    while (result == CUDA_SUCCESS && layer_count < LAYERS_MAX &&
           (layer_count + 1) * LAYER_BYTES + ACTIVATION_BYTES <= mib << 20) {
        result = mem_alloc(&layers[layer_count], LAYER_BYTES);
        if (result == CUDA_SUCCESS)
            teach(layer_count++);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return 0;
    driver_check(result, "cuMemAlloc");
    driver_check(stream_synchronize(stream), "cuStreamSynchronize");
    return 1;
}

/* Whether the answer is right. */
static int answer(void)
{
    const uint64_t x = draw() % 1000;
    uint64_t sum = 0, expected = 0;
    if (draw() % TEACH == 0)
        teach(draw() % layer_count);
    for (unsigned pass = 0; pass < PASSES; pass++)
        driver_check(memset_async(activation, pass, ACTIVATION_BYTES / sizeof(uint32_t), stream),
                     "cuMemsetD32Async");
    memset(seen, 0, sizeof(seen));
    for (size_t i = 0; i < layer_count; i++) { /* a word of each, anywhere in it */
        const size_t at = draw() % (LAYER_BYTES / sizeof(uint32_t)) * sizeof(uint32_t);
        driver_check(memcpy_async(&seen[i], layers[i] + at, sizeof(seen[i]), stream),
                     "cuMemcpyDtoHAsync");
    }
    driver_check(stream_synchronize(stream), "cuStreamSynchronize");
    for (size_t i = 0; i < layer_count; i++) {
        sum += seen[i] * x;
        expected += values[i] * x;
    }
    return sum == expected;
}

static int serve(double seconds, double mean_ms)
{
    const uint64_t begin = now_us(), end = begin + (uint64_t)(seconds * 1e6);
    unsigned long right = 0, wrong = 0;
    for (uint64_t arrival = begin; arrival < end;) {
        wait_until(arrival);
        const uint64_t began = now_us();
        const int is_right = answer();
        right += is_right != 0;
        wrong += is_right == 0;
        printf("answer %lu arrived %llu began %llu ended %llu %s\n", right + wrong,
               (unsigned long long)arrival, (unsigned long long)began, (unsigned long long)now_us(),
               is_right ? "right" : "WRONG");
        /* bursts: most gaps are short, the others make up for it */
        arrival += draw_gap_us(draw() % BURST == 0 ? mean_ms * (BURST - 1) : mean_ms / BURST);
    }
    printf("end right %lu wrong %lu\n", right, wrong);
    return wrong == 0 && right != 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    size_t available = 0, total = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "--free") == 0) {
        start();
        driver_check(mem_info(&available, &total), "cuMemGetInfo");
        printf("%zu\n", available);
        return EXIT_SUCCESS;
    }
    if (argc != 6)
        return 2;
    const size_t mib = (size_t)strtoull(argv[2], NULL, 10);
    random_state = strtoull(argv[3], NULL, 10);
    start();
    if (!load(mib)) {
        printf("out of memory: %zu of %zu MiB\n", layer_count * LAYER_BYTES >> 20, mib);
        return EXIT_FAILURE;
    }
    printf("ready %llu\n", (unsigned long long)now_us());
    const int status = serve(atof(argv[4]), atof(argv[5]));
    while (layer_count != 0)
        driver_check(mem_free(layers[--layer_count]), "cuMemFree");
    driver_check(mem_free(activation), "cuMemFree");
    return status;
}
