/* link: -l:libcuda.so.1 */
/* Pools are destroyed, which waits for all of the device, while another thread makes and destroys
 * contexts: that one of these is gone is no failure. usage: elastic_contexts SECONDS */
#include "tests/preload/progs/public.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static atomic_bool is_over;

static void *come_and_go(void *unused)
{
    CUcontext context;
    (void)unused;
    while (!atomic_load(&is_over)) {
        CHECK(cuCtxCreate(&context, NULL, 0, 0));
        const CUdeviceptr block = program_alloc(1 << 20);
        CHECK(cuMemsetD8Async(block, 1, 1 << 20, NULL));
        CHECK(cuCtxDestroy(context));
    }
    return NULL;
}

int main(int argument_count, char **arguments)
{
    const time_t end = time(NULL) + (argument_count > 1 ? atoi(arguments[1]) : 2);
    pthread_t thread;
    gpucache_elastic pool;

    program_start();
    EXPECT_STATUS(gpucache_load(NULL, &gc), GPUCACHE_OK);
    CHECK(cuMemFree(program_alloc(1)));
    EXPECT(pthread_create(&thread, NULL, come_and_go, NULL) == 0);
    while (time(NULL) < end) {
        EXPECT_STATUS(gc.gpucache_elastic_create(0, 8 << 20, 0, 0, &pool, NULL), GPUCACHE_OK);
        EXPECT_STATUS(gc.gpucache_elastic_allocate(pool, 0, 4 << 20), GPUCACHE_OK);
        EXPECT_STATUS(gc.gpucache_elastic_destroy(pool), GPUCACHE_OK);
    }
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    return EXIT_SUCCESS;
}
