/* usage: spill_threads ROUNDS: threads that allocate, fill, copy, check and free blocks of many
 * sizes, beyond the limit, while blocks move to host memory and work of other threads goes on. */
/* link: -l:libcuda.so.1 -lpthread */
#include "tests/preload/progs/program.h"

#include <pthread.h>
#include <string.h>

#define THREADS 4
#define SLOTS 5
#define MIB ((size_t)1 << 20)

struct slot {
    CUdeviceptr block;
    size_t bytes;
    unsigned char value;
};

static CUcontext context;
static int rounds;

static void check_block(const struct slot *slot, unsigned char *host, CUstream stream)
{
    CHECK(cuMemcpyDtoHAsync(host, slot->block, slot->bytes, stream));
    CHECK(cuStreamSynchronize(stream));
    for (size_t i = 0; i < slot->bytes; i += 509)
        if (host[i] != slot->value) {
            fprintf(stderr, "byte %zu of %zu: %u, not %u\n", i, slot->bytes, host[i], slot->value);
            exit(EXIT_FAILURE);
        }
}

static void *work(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument * 7919 + 1;
    struct slot slots[SLOTS] = {{0, 0, 0}};
    unsigned char *host = malloc(16 * MIB);
    CUstream stream;

    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < rounds; i++) {
        struct slot *slot = &slots[rand_r(&seed) % SLOTS];
        const struct slot *other = &slots[rand_r(&seed) % SLOTS];
        if (slot->block != 0) {
            check_block(slot, host, stream);
            /* Some frees come while work is under way. */
            CHECK(cuMemsetD8Async(slot->block, 0, slot->bytes, stream));
            CHECK(cuMemFree(slot->block));
            slot->block = 0;
            continue;
        }
        slot->bytes = MIB + (size_t)rand_r(&seed) % (15 * MIB);
        slot->value = (unsigned char)(1 + rand_r(&seed) % 255);
        CHECK(cuMemAlloc(&slot->block, slot->bytes));
        CHECK(cuMemsetD8Async(slot->block, slot->value, slot->bytes, stream));
        if (other->block != 0 && other != slot)
            check_block(other, host, stream);
    }
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].block != 0) {
            check_block(&slots[i], host, stream);
            CHECK(cuMemFree(slots[i].block));
        }
    CHECK(cuStreamDestroy(stream));
    free(host);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];

    rounds = argc == 2 ? atoi(argv[1]) : 100;
    context = program_start();
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0)
            return 2;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(cuCtxSynchronize());
    printf("done\n");
    return EXIT_SUCCESS;
}
