/* link: -l:libcuda.so.1 */
/* Eight threads take and free memory against a limit: usage: limit_threads SECONDS LIMIT_BYTES
 *
 * Every failure must be CUDA_ERROR_OUT_OF_MEMORY, what is live at once must stay below the limit,
 * and cuMemGetInfo must never show more than it. Blocks are filled and read back. Frees all and
 * releases the context at the end. Prints `allocations N failures N`. */
#include "tests/preload/progs/program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define THREADS 8
#define SLOTS 48
#define SAMPLE_BYTES 64

static CUcontext context;
static uint64_t limit_bytes;
static time_t end_time;
static atomic_uint_fast64_t live_bytes, allocation_count, failure_count;
static atomic_int wrong_count;

static void complain(const char *what, long long value)
{
    if (atomic_fetch_add(&wrong_count, 1) < 10)
        fprintf(stderr, "%s: %lld\n", what, value);
}

struct slot {
    CUdeviceptr block;
    size_t bytes;
    unsigned char value;
};

static void put_back(struct slot *slot)
{
    unsigned char sample[SAMPLE_BYTES];
    size_t bytes = slot->bytes < sizeof(sample) ? slot->bytes : sizeof(sample);
    CHECK(cuMemcpyDtoH(sample, slot->block + slot->bytes - bytes, bytes));
    for (size_t i = 0; i < bytes; i++)
        if (sample[i] != slot->value)
            complain("a block was written by another", (long long)slot->bytes);
    atomic_fetch_sub(&live_bytes, slot->bytes);
    CHECK(cuMemFree(slot->block));
    slot->block = 0;
}

static void take(struct slot *slot, unsigned *seed)
{
    size_t total_now, free_now;
    slot->bytes = ((size_t)1 << (10 + (unsigned)rand_r(seed) % 15)) + (size_t)rand_r(seed) % 4096;
    slot->value = (unsigned char)(rand_r(seed) % 255 + 1);
    CUresult result = cuMemAlloc(&slot->block, slot->bytes);
    if (result != CUDA_SUCCESS) {
        slot->block = 0;
        if (result != CUDA_ERROR_OUT_OF_MEMORY)
            complain("cuMemAlloc failed with another error", (long long)result);
        atomic_fetch_add(&failure_count, 1);
    } else {
        uint64_t now = atomic_fetch_add(&live_bytes, slot->bytes) + slot->bytes;
        if (now > limit_bytes)
            complain("live bytes are above the limit", (long long)now);
        atomic_fetch_add(&allocation_count, 1);
        CHECK(cuMemsetD8(slot->block, slot->value, slot->bytes));
    }
    if (rand_r(seed) % 16 == 0) {
        CHECK(cuMemGetInfo(&free_now, &total_now));
        if (total_now > limit_bytes || free_now > total_now)
            complain("cuMemGetInfo shows more than the limit", (long long)total_now);
    }
}

static void *work(void *argument)
{
    unsigned seed = *(const unsigned *)argument;
    struct slot slots[SLOTS];
    memset(slots, 0, sizeof(slots));
    CHECK(cuCtxSetCurrent(context));
    while (time(NULL) < end_time) {
        struct slot *slot = &slots[(unsigned)rand_r(&seed) % SLOTS];
        if (slot->block != 0)
            put_back(slot);
        else
            take(slot, &seed);
    }
    for (size_t i = 0; i < SLOTS; i++)
        if (slots[i].block != 0)
            put_back(&slots[i]);
    return NULL;
}

int main(int argument_count, char **arguments)
{
    pthread_t threads[THREADS];
    unsigned seeds[THREADS];
    if (argument_count != 3)
        return 2;
    limit_bytes = strtoull(arguments[2], NULL, 10);
    context = program_start();
    end_time = time(NULL) + atoi(arguments[1]);
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = i + 1;
        if (pthread_create(&threads[i], NULL, work, &seeds[i]) != 0)
            return EXIT_FAILURE;
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(cuDevicePrimaryCtxRelease(0));
    printf("allocations %llu failures %llu\n", (unsigned long long)atomic_load(&allocation_count),
           (unsigned long long)atomic_load(&failure_count));
    return atomic_load(&wrong_count) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
