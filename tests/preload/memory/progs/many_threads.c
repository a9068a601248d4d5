/* link: -l:libcuda.so.1 */
/* Threads by the thousand, each of which takes, writes and frees memory and ends; some leave a
 * block to the next. usage: many_threads COUNT
 *
 * The process's own memory and the library's host memory after the first tenth are what they are at
 * the end, but for noise. */
#define _GNU_SOURCE
#include "tests/preload/progs/public.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#define BESIDE 8       /* at a time */
#define NOISE_KIB 6144 /* a record left by each would be ten times that */

static CUcontext context;
static CUdeviceptr left[BESIDE]; /* by a thread to the next in its place */

static void *live(void *argument)
{
    const uintptr_t number = (uintptr_t)argument;
    CUdeviceptr *place = &left[number % BESIDE];

    CHECK(cuCtxSetCurrent(context));
    if (*place != 0)
        CHECK(cuMemFree(*place));
    *place = program_alloc(100 + number % 1000 * 997);
    CHECK(cuMemsetD8Async(*place, 1, 100, CU_STREAM_PER_THREAD));
    CHECK(cuMemFree(program_alloc(64 << (number % 12))));
    return NULL;
}

static long resident_kib(void)
{
    long pages = 0, shared = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    EXPECT(file != NULL && fscanf(file, "%*d %ld %ld", &pages, &shared) == 2);
    fclose(file);
    return (pages - shared) * (sysconf(_SC_PAGESIZE) / 1024);
}

static void run(uintptr_t from, uintptr_t to)
{
    pthread_t threads[BESIDE];

    for (uintptr_t i = from; i < to; i += BESIDE) {
        for (uintptr_t k = 0; k < BESIDE; k++)
            EXPECT(pthread_create(&threads[k], NULL, live, (void *)(i + k)) == 0);
        for (uintptr_t k = 0; k < BESIDE; k++)
            EXPECT(pthread_join(threads[k], NULL) == 0);
    }
}

static uint64_t metadata(void)
{
    struct gpucache_statistics figures = {.struct_bytes = sizeof(figures)};
    EXPECT_STATUS(gc.gpucache_get_statistics(0, &figures), GPUCACHE_OK);
    return figures.metadata_bytes;
}

int main(int argument_count, char **arguments)
{
    const uintptr_t count = argument_count > 1 ? strtoul(arguments[1], NULL, 10) : 10000;

    (void)mallopt(M_ARENA_MAX, 1); /* how many malloc would make depends on the machine's load */
    context = program_start();
    EXPECT_STATUS(gpucache_load(NULL, &gc), GPUCACHE_OK);
    run(0, count / 10);
    const long resident = resident_kib();
    const uint64_t host = metadata();
    run(count / 10, count);
    const long grown = resident_kib() - resident;
    for (int i = 0; i < BESIDE; i++)
        CHECK(cuMemFree(left[i]));
    printf("%lu threads, memory grew by %ld KiB, the library's by %ld\n", (unsigned long)count,
           grown, (long)(metadata() - host) / 1024);
    return grown > NOISE_KIB || metadata() > host + ((uint64_t)NOISE_KIB << 10) / 4;
}
