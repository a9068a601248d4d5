/* link: -l:libcuda.so.1 */
/* Tenants of a program, through core/gpucache.h and by the object that called. usage: tenants CASE
 * [OBJECT…], each a copy of libtenant.so. Prints nothing, but what a case is for, and ends with 0
 * if all is as it should be. */
#include "tests/preload/progs/public.h"
#include "tests/preload/progs/tenant_ways.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define BLOCK (10 * MIB) /* half of what the driver is asked for where memory is not mapped */

/* ---- tenants ---- */

static gpucache_tenant make(const char *name, uint64_t capacity, uint64_t limit)
{
    gpucache_tenant tenant = 0;
    EXPECT_STATUS(gc.gpucache_tenant_register(name, capacity, limit, &tenant), GPUCACHE_OK);
    EXPECT(tenant != 0);
    return tenant;
}

static gpucache_tenant find(const char *name)
{
    gpucache_tenant tenant = 0;
    EXPECT_STATUS(gc.gpucache_tenant_find(name, &tenant), GPUCACHE_OK);
    return tenant;
}

static struct gpucache_tenant_statistics figures_of(gpucache_tenant tenant)
{
    struct gpucache_tenant_statistics figures = {.struct_bytes = sizeof(figures)};
    EXPECT_STATUS(gc.gpucache_tenant_get_statistics(tenant, 0, &figures), GPUCACHE_OK);
    return figures;
}

static uint64_t live_of(gpucache_tenant tenant)
{
    return figures_of(tenant).requested_bytes;
}

static void set(gpucache_tenant tenant)
{
    EXPECT_STATUS(gc.gpucache_tenant_set_current(tenant, NULL), GPUCACHE_OK);
}

static CUresult try_alloc(uint64_t bytes, CUdeviceptr *block)
{
    *block = 0;
    return cuMemAlloc(block, bytes);
}

/* ---- objects ---- */

struct object {
    void *library;
    int (*take)(const char *way, size_t bytes, uint64_t *what);
    int (*give)(const char *way, uint64_t what);
    int (*info)(const char *way, uint64_t *free_bytes, uint64_t *total_bytes);
    uint64_t *early;
};

static struct object load(const char *path)
{
    struct object object = {.library = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (object.library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(EXIT_FAILURE);
    }
    *(void **)&object.take = dlsym(object.library, "tenant_take");
    *(void **)&object.give = dlsym(object.library, "tenant_give");
    *(void **)&object.info = dlsym(object.library, "tenant_info");
    object.early = dlsym(object.library, "tenant_early");
    EXPECT(object.take != NULL && object.give != NULL && object.info != NULL);
    return object;
}

static const char *const ways[] = {
#define WAY(name, take, give) #name,
    TENANT_WAYS(WAY)
#undef WAY
};
#define WAY_COUNT (sizeof(ways) / sizeof(ways[0]))

static bool serves_elastic(void)
{
    gpucache_elastic pool;
    const gpucache_status status =
        gc.gpucache_elastic_create(0, BLOCK, 0, GPUCACHE_ELASTIC_NO_WARM, &pool, NULL);
    if (status == GPUCACHE_OK)
        EXPECT_STATUS(gc.gpucache_elastic_destroy(pool), GPUCACHE_OK);
    return status == GPUCACHE_OK;
}

/* Stream-ordered memory of the driver's own pool is everyone's. */
static bool serves_async(void)
{
    const char *backend = getenv("GPUCACHE_BACKEND");
    return backend == NULL || strcmp(backend, "driver") != 0;
}

/* Every way counts for `owner` and is bounded by its limit; nothing does for `other`. */
static void check_ways(const struct object *object, gpucache_tenant owner, gpucache_tenant other)
{
    const uint64_t limit = figures_of(owner).limit_bytes;
    const bool has_elastic = serves_elastic();
    for (size_t i = 0; i < WAY_COUNT; i++) {
        const uint64_t before = figures_of(owner).reserved_bytes - figures_of(owner).idle_bytes;
        const uint64_t live_before = live_of(owner);
        const uint64_t others = figures_of(other).alloc_count;
        const bool is_elastic = strcmp(ways[i], "elastic") == 0;
        uint64_t what = 0, more = 0;
        if ((is_elastic && !has_elastic) || (strstr(ways[i], "async") != NULL && !serves_async()))
            continue;
        const int result = object->take(ways[i], BLOCK, &what);
        const struct gpucache_tenant_statistics with = figures_of(owner);
        if (result != 0 || with.reserved_bytes - with.idle_bytes < before + BLOCK ||
            (!is_elastic && with.requested_bytes < live_before + BLOCK)) {
            fprintf(stderr, "%s: result %d: reserved %llu of %llu, live %llu\n", ways[i], result,
                    (unsigned long long)with.reserved_bytes, (unsigned long long)before,
                    (unsigned long long)with.requested_bytes);
            exit(EXIT_FAILURE);
        }
        if (object->take(ways[i], limit, &more) == 0) {
            fprintf(stderr, "%s: the limit does not hold\n", ways[i]);
            exit(EXIT_FAILURE);
        }
        if (is_elastic && more != 0)
            EXPECT(object->give(ways[i], more) == 0);
        const int given = object->give(ways[i], what);
        if (given != 0)
            fprintf(stderr, "%s: not given: %d\n", ways[i], given);
        EXPECT(given == 0);
        CHECK(cuCtxSynchronize());
        if (live_of(owner) != live_before || figures_of(other).alloc_count != others) {
            fprintf(stderr, "%s: not given back, or counted for another\n", ways[i]);
            exit(EXIT_FAILURE);
        }
    }
}

/* ---- the API's answers ---- */

static void check_names(void)
{
    gpucache_tenant tenant = 0;
    char name[80];
    EXPECT_STATUS(gc.gpucache_tenant_register(NULL, 0, GIB, &tenant), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_tenant_register("a", 0, GIB, NULL), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_tenant_register("a", 0, 0, &tenant), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_tenant_register("", 0, GIB, &tenant), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_tenant_register("a b", 0, GIB, &tenant), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_tenant_register(".a", 0, GIB, &tenant), GPUCACHE_INVALID_ARGUMENT);
    memset(name, 'n', sizeof(name));
    name[64] = '\0';
    EXPECT_STATUS(gc.gpucache_tenant_register(name, 0, GIB, &tenant), GPUCACHE_INVALID_ARGUMENT);
    name[63] = '\0';
    tenant = make(name, 0, GIB);
    EXPECT(find(name) == tenant);
    EXPECT_STATUS(gc.gpucache_tenant_register(name, 0, GIB, &tenant), GPUCACHE_ALREADY_EXISTS);
    EXPECT_STATUS(gc.gpucache_tenant_find("nobody", &tenant), GPUCACHE_NOT_FOUND);
    EXPECT_STATUS(gc.gpucache_tenant_find(NULL, &tenant), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_tenant_find(name, NULL), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_tenant_unregister(find(name)), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_tenant_find(name, &tenant), GPUCACHE_NOT_FOUND);
}

static void check_bad_handle(gpucache_tenant bad)
{
    struct gpucache_tenant_statistics figures = {.struct_bytes = sizeof(figures)};
    EXPECT_STATUS(gc.gpucache_tenant_unregister(bad), GPUCACHE_INVALID_HANDLE);
    EXPECT_STATUS(gc.gpucache_tenant_set_limit(bad, GIB), GPUCACHE_INVALID_HANDLE);
    EXPECT_STATUS(gc.gpucache_tenant_get_statistics(bad, 0, &figures), GPUCACHE_INVALID_HANDLE);
    if (bad != 0)
        EXPECT_STATUS(gc.gpucache_tenant_set_current(bad, NULL), GPUCACHE_INVALID_HANDLE);
}

static void check_handles(void)
{
    gpucache_tenant all[65], gone, again, current = 1;
    char name[16];
    for (int i = 0; i < 64; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        all[i] = make(name, 0, GIB);
        for (int k = 0; k < i; k++)
            EXPECT(all[k] != all[i]);
    }
    EXPECT_STATUS(gc.gpucache_tenant_register("more", 0, GIB, &all[64]), GPUCACHE_TOO_MANY);
    gone = all[17];
    EXPECT_STATUS(gc.gpucache_tenant_unregister(gone), GPUCACHE_OK);
    again = make("t17", 0, GIB);
    EXPECT(again != gone);
    check_bad_handle(gone);
    check_bad_handle(0);
    check_bad_handle(12345);
    check_bad_handle(UINT64_MAX);
    EXPECT_STATUS(gc.gpucache_tenant_get_current(&current), GPUCACHE_OK);
    EXPECT(current == 0);
    all[17] = again;
    for (int i = 0; i < 64; i++)
        EXPECT_STATUS(gc.gpucache_tenant_unregister(all[i]), GPUCACHE_OK);
}

static void check_scopes(void)
{
    const gpucache_tenant a = make("a", 0, GIB), b = make("b", 0, GIB);
    gpucache_tenant before = 99, inner = 99, now = 99;
    EXPECT_STATUS(gc.gpucache_tenant_set_current(a, &before), GPUCACHE_OK);
    EXPECT(before == 0);
    EXPECT_STATUS(gc.gpucache_tenant_set_current(b, &inner), GPUCACHE_OK);
    EXPECT(inner == a);
    EXPECT_STATUS(gc.gpucache_tenant_set_current(12345, &inner), GPUCACHE_INVALID_HANDLE);
    EXPECT_STATUS(gc.gpucache_tenant_get_current(&now), GPUCACHE_OK);
    EXPECT(now == b && inner == a);
    EXPECT_STATUS(gc.gpucache_tenant_get_current(NULL), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_tenant_unregister(b), GPUCACHE_BUSY);
    EXPECT_STATUS(gc.gpucache_tenant_set_current(inner, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_tenant_unregister(b), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_tenant_set_current(before, NULL), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_tenant_unregister(a), GPUCACHE_OK);
}

static pthread_barrier_t barrier;

static void *hold_one(void *argument)
{
    set(*(const gpucache_tenant *)argument);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL; /* ends with it current */
}

static void check_threads(void)
{
    gpucache_tenant tenant = make("a", 0, GIB), now = 99;
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    EXPECT(pthread_create(&thread, NULL, hold_one, &tenant) == 0);
    pthread_barrier_wait(&barrier);
    EXPECT_STATUS(gc.gpucache_tenant_get_current(&now), GPUCACHE_OK);
    EXPECT(now == 0);
    EXPECT_STATUS(gc.gpucache_tenant_unregister(tenant), GPUCACHE_BUSY);
    set(tenant); /* BUSY has changed nothing */
    set(0);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    EXPECT_STATUS(gc.gpucache_tenant_unregister(tenant), GPUCACHE_OK);
}

static void api(void)
{
    gpucache_tenant tenant = 0;
    /* Needs no CUDA. */
    EXPECT_STATUS(gc.gpucache_tenant_set_current(0, &tenant), GPUCACHE_OK);
    check_names();
    check_handles();
    check_scopes();
    check_threads();
}

/* ---- memory ---- */

/* One is at its limit while the other goes on. */
static void limits(void)
{
    const gpucache_tenant a = make("a", 0, 6 * BLOCK), b = make("b", 0, 12 * BLOCK);
    CUdeviceptr of_a[6], of_b[12], none;
    program_start();
    for (int i = 0; i < 6; i++) {
        set(a);
        CHECK(try_alloc(BLOCK, &of_a[i]));
        set(b);
        CHECK(try_alloc(BLOCK, &of_b[i]));
    }
    set(a);
    EXPECT(try_alloc(BLOCK, &none) == CUDA_ERROR_OUT_OF_MEMORY);
    set(b);
    for (int i = 6; i < 12; i++)
        CHECK(try_alloc(BLOCK, &of_b[i]));
    EXPECT(try_alloc(BLOCK, &none) == CUDA_ERROR_OUT_OF_MEMORY);
    set(0);
    CHECK(try_alloc(256 * MIB, &none));
    EXPECT(figures_of(a).reserved_bytes <= 6 * BLOCK && figures_of(a).oom_count > 0);
    EXPECT(live_of(a) == 6 * BLOCK && live_of(b) == 12 * BLOCK);
    EXPECT_STATUS(gc.gpucache_tenant_set_limit(a, 7 * BLOCK), GPUCACHE_OK);
    set(a);
    CHECK(try_alloc(BLOCK, &none));
    EXPECT_STATUS(gc.gpucache_tenant_set_limit(a, 0), GPUCACHE_INVALID_ARGUMENT);
    EXPECT_STATUS(gc.gpucache_tenant_set_limit(a, MIB), GPUCACHE_OK);
    EXPECT(try_alloc(512, &none) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* An address belongs to one tenant: whatever is current, the owner has it back. */
static void frees(void)
{
    const gpucache_tenant a = make("a", 0, GIB), b = make("b", 0, GIB);
    CUdeviceptr small, large, plain;
    program_start();
    set(a);
    CHECK(try_alloc(512, &small));
    CHECK(try_alloc(BLOCK, &large));
    set(0);
    CHECK(try_alloc(BLOCK, &plain));
    EXPECT_STATUS(gc.gpucache_tenant_unregister(a), GPUCACHE_BUSY);
    set(b);
    CHECK(cuMemsetD8(large, 1, BLOCK));
    CHECK(cuMemFree(large));
    CHECK(cuMemFree(small));
    CHECK(cuMemFree(plain));
    EXPECT(cuMemFree(small) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(live_of(a) == 0 && figures_of(a).free_count == 2 && figures_of(b).free_count == 0);
    set(0);
    EXPECT_STATUS(gc.gpucache_tenant_unregister(a), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_tenant_unregister(b), GPUCACHE_OK);
}

/* No block of another lies in a tenant's range. */
static void ranges(void)
{
    const gpucache_tenant tenants[] = {make("a", 256 * MIB, GIB), make("b", 256 * MIB, GIB), 0};
    CUdeviceptr blocks[3][24];
    program_start();
    for (int i = 0; i < 24; i++)
        for (int k = 0; k < 3; k++) {
            set(tenants[k]);
            CHECK(try_alloc(4 * MIB, &blocks[k][i]));
        }
    for (int k = 0; k < 2; k++) {
        const struct gpucache_tenant_statistics figures = figures_of(tenants[k]);
        const CUdeviceptr base = (CUdeviceptr)(uintptr_t)figures.base;
        EXPECT(figures.capacity_bytes == 256 * MIB && base != 0);
        for (int i = 0; i < 24; i++)
            for (int other = 0; other < 3; other++) {
                const bool is_inside =
                    blocks[other][i] >= base && blocks[other][i] < base + figures.capacity_bytes;
                EXPECT(is_inside == (other == k));
            }
    }
}

/* Addresses end where the capacity does. */
static void capacities(void)
{
    const gpucache_tenant small = make("small", 1, GIB), some = make("some", 4 * BLOCK, GIB);
    gpucache_tenant huge;
    CUdeviceptr block, none, last = 0;
    int count = 0;
    program_start();
    set(some);
    for (; count < 100 && try_alloc(BLOCK, &block) == CUDA_SUCCESS; count++)
        last = block;
    EXPECT(count == 4);
    CHECK(cuMemFree(last));
    CHECK(try_alloc(BLOCK, &block));
    set(small);
    EXPECT(try_alloc(GIB / 2, &none) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_STATUS(gc.gpucache_tenant_register("huge", UINT64_MAX, GIB, &huge),
                  GPUCACHE_INVALID_ARGUMENT);
    set(0);
    CHECK(try_alloc(BLOCK, &none));
}

static void info(void)
{
    const gpucache_tenant a = make("a", 0, 6 * BLOCK), tight = make("tight", 2 * BLOCK, 6 * BLOCK);
    size_t free_bytes, total_bytes, free_before, total_before;
    CUdeviceptr block;
    int fits = 1;
    program_start();
    CHECK(cuMemGetInfo(&free_before, &total_before));
    set(a);
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
    EXPECT(total_bytes == 6 * BLOCK && free_bytes == 6 * BLOCK);
    CHECK(try_alloc(BLOCK, &block));
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
    EXPECT(total_bytes == 6 * BLOCK && free_bytes == 5 * BLOCK);
    EXPECT_STATUS(gc.gpucache_would_fit(0, 5 * BLOCK + MIB, &fits, NULL), GPUCACHE_OK);
    EXPECT(fits == 0);
    EXPECT_STATUS(gc.gpucache_would_fit(0, 5 * BLOCK, &fits, NULL), GPUCACHE_OK);
    EXPECT(fits == 1);
    CHECK(cuMemFree(block)); /* idle memory is free */
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
    EXPECT(free_bytes == 6 * BLOCK);
    set(tight);
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
    EXPECT(total_bytes == 6 * BLOCK && free_bytes == 2 * BLOCK);
    set(0);
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
    EXPECT(total_bytes == total_before && free_bytes == free_before);
}

/* The caches of the thread hold blocks of each: what is current decides, call by call. */
static void switches(const struct object *object)
{
    const gpucache_tenant tenants[] = {make("a", 0, GIB), make("b", 0, GIB), 0};
    uint64_t blocks[3];
    program_start();
    for (int i = 0; i < 300; i++) {
        const char *way = i % 3 == 0 ? "plain" : "runtime";
        for (int k = 0; k < 3; k++) {
            set(tenants[k]);
            EXPECT(object->take(way, 4096, &blocks[k]) == 0);
        }
        EXPECT(live_of(tenants[0]) == 4096 && live_of(tenants[1]) == 4096);
        for (int k = 0; k < 3; k++) /* by a thread that has the last one's current */
            EXPECT(object->give(way, blocks[k]) == 0);
        EXPECT(live_of(tenants[0]) == 0 && live_of(tenants[1]) == 0);
    }
    EXPECT(figures_of(tenants[0]).alloc_count == 300 && figures_of(tenants[1]).alloc_count == 300);
    EXPECT(figures_of(tenants[0]).hit_count > 250 && figures_of(tenants[1]).hit_count > 250);
}

/* One tenant in several contexts and on two devices: a limit on each. */
static void devices(void)
{
    const gpucache_tenant a = make("a", 0, 2 * BLOCK);
    struct gpucache_tenant_statistics all = {.struct_bytes = sizeof(all)};
    CUcontext contexts[3];
    CUdeviceptr blocks[3], none;
    contexts[0] = program_start();
    CHECK(cuDevicePrimaryCtxRetain(&contexts[1], 1));
#if CUDA_VERSION >= 13000
    CHECK(cuCtxCreate(&contexts[2], NULL, 0, 1));
#else
    CHECK(cuCtxCreate(&contexts[2], 0, 1));
#endif
    set(a);
    for (int i = 0; i < 3; i++) {
        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(try_alloc(BLOCK, &blocks[i]));
    }
    EXPECT(try_alloc(BLOCK, &none) == CUDA_ERROR_OUT_OF_MEMORY); /* device 1 is full */
    CHECK(cuCtxSetCurrent(contexts[0]));
    CHECK(try_alloc(BLOCK, &none));
    EXPECT_STATUS(gc.gpucache_tenant_get_statistics(a, GPUCACHE_ALL_DEVICES, &all), GPUCACHE_OK);
    EXPECT(all.requested_bytes == 4 * BLOCK && live_of(a) == 2 * BLOCK && all.base == NULL);
    EXPECT_STATUS(gc.gpucache_tenant_get_statistics(a, 7, &all), GPUCACHE_NOT_READY);
    EXPECT_STATUS(gc.gpucache_tenant_get_statistics(a, -2, &all), GPUCACHE_INVALID_DEVICE);
    CHECK(cuCtxDestroy(contexts[2])); /* with what was allocated there */
    EXPECT_STATUS(gc.gpucache_tenant_get_statistics(a, 1, &all), GPUCACHE_OK);
    EXPECT(all.requested_bytes == BLOCK);
    CHECK(cuCtxSetCurrent(contexts[1]));
    CHECK(try_alloc(BLOCK, &none));
}

/* Some threads come to a tenant and leave it while another registers and unregisters it. */
static _Atomic(gpucache_tenant) offered;
static atomic_bool is_over;
static atomic_uint visits;

static void *visit(void *context)
{
    CUdeviceptr block;
    CHECK(cuCtxSetCurrent(context));
    while (!is_over) {
        const gpucache_tenant tenant = offered;
        const gpucache_status status = gc.gpucache_tenant_set_current(tenant, NULL);
        if (tenant == 0 || status != GPUCACHE_OK) {
            EXPECT(tenant == 0 || status == GPUCACHE_INVALID_HANDLE || status == GPUCACHE_BUSY);
            sched_yield();
            continue;
        }
        /* While it is current it stays. */
        for (int i = 0; i < 10; i++) {
            CHECK(try_alloc(4096, &block));
            CHECK(cuMemFree(block));
        }
        set(0);
        visits++;
    }
    return NULL;
}

static void churn(void)
{
    pthread_t threads[3];
    CUcontext context = program_start();
    gpucache_tenant last = 0;
    for (int i = 0; i < 3; i++)
        EXPECT(pthread_create(&threads[i], NULL, visit, context) == 0);
    for (int round = 0; round < 40; round++) {
        const unsigned before = visits;
        const gpucache_tenant tenant = make("a", 64 * MIB, 64 * MIB);
        EXPECT(tenant != last);
        last = tenant;
        offered = tenant;
        while (visits - before < 6)
            sched_yield();
        offered = 0;
        for (;;) {
            const gpucache_status status = gc.gpucache_tenant_unregister(tenant);
            if (status == GPUCACHE_OK)
                break;
            EXPECT_STATUS(status, GPUCACHE_BUSY);
            sched_yield();
        }
    }
    is_over = true;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

static void states(gpucache_status wanted)
{
    struct gpucache_tenant_statistics figures = {.struct_bytes = sizeof(figures)};
    gpucache_tenant tenant = 0;
    EXPECT_STATUS(gc.gpucache_tenant_register("a", 0, GIB, &tenant), wanted);
    EXPECT_STATUS(gc.gpucache_tenant_find("a", &tenant), wanted);
    EXPECT_STATUS(gc.gpucache_tenant_set_current(64, NULL), wanted);
    EXPECT_STATUS(gc.gpucache_tenant_get_current(&tenant), wanted);
    EXPECT_STATUS(gc.gpucache_tenant_set_limit(64, GIB), wanted);
    EXPECT_STATUS(gc.gpucache_tenant_unregister(64), wanted);
    EXPECT_STATUS(gc.gpucache_tenant_get_statistics(64, 0, &figures), wanted);
}

static void off(void)
{
    CUdeviceptr block;
    program_start();
    states(GPUCACHE_DISABLED);
    CHECK(try_alloc(BLOCK, &block));
}

static void forked(void)
{
    const gpucache_tenant tenant = make("a", 0, GIB);
    CUdeviceptr block;
    int status = -1;
    program_start();
    set(tenant);
    CHECK(try_alloc(BLOCK, &block));
    const pid_t child = fork();
    if (child == 0) {
        states(GPUCACHE_FORKED);
        exit(EXIT_SUCCESS);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    CHECK(cuMemFree(block));
    set(0);
    EXPECT_STATUS(gc.gpucache_tenant_unregister(tenant), GPUCACHE_OK);
}

static void every_way(const struct object *object)
{
    const gpucache_tenant a = make("a", 0, 6 * BLOCK), b = make("b", 0, 6 * BLOCK);
    program_start();
    set(a);
    check_ways(object, a, b);
    set(b);
    check_ways(object, b, a);
    set(0);
    EXPECT_STATUS(gc.gpucache_tenant_unregister(a), GPUCACHE_OK);
    EXPECT_STATUS(gc.gpucache_tenant_unregister(b), GPUCACHE_OK);
}

/* ---- by the object that called: one=, two=, rest=* ---- */

static void rules(const struct object *one, const struct object *two)
{
    const gpucache_tenant first = find("one"), second = find("two"), rest = find("rest");
    uint64_t what, kept[6], available, total;
    CUdeviceptr block;
    program_start();
    check_ways(one, first, second);
    check_ways(two, second, first);
    for (int i = 0; i < 6; i++)
        EXPECT(one->take("runtime", BLOCK, &kept[i]) == 0);
    EXPECT(one->take("plain", BLOCK, &what) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(two->take("plain", BLOCK, &what) == 0); /* the other goes on */
    EXPECT(two->take("runtime", BLOCK, &kept[0]) == 0);
    EXPECT(two->give("runtime", what) == 0);
    for (int i = 0; i < 2; i++) {
        EXPECT(one->info(i == 0 ? "plain" : "runtime", &available, &total) == 0);
        EXPECT(total == 6 * BLOCK && available == 0);
        EXPECT(two->info(i == 0 ? "plain" : "runtime", &available, &total) == 0);
        EXPECT(total == 6 * BLOCK && available <= 5 * BLOCK && available >= 4 * BLOCK);
    }
    EXPECT(live_of(rest) == 0);
    CHECK(try_alloc(BLOCK, &block));
    EXPECT(live_of(rest) == BLOCK);
    EXPECT_STATUS(gc.gpucache_tenant_unregister(rest), GPUCACHE_NOT_SUPPORTED);
    /* The tenant that the program sets for a thread comes first. */
    set(rest);
    EXPECT(one->take("plain", BLOCK, &what) == 0);
    EXPECT(live_of(rest) == 2 * BLOCK);
    set(0);
    EXPECT(one->take("plain", BLOCK, &what) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* Objects that come and go at the same addresses. */
static void reload(char *const *paths)
{
    const gpucache_tenant owners[] = {find("one"), find("two")};
    const void *last = NULL;
    int same = 0;
    program_start();
    for (int i = 0; i < 40; i++) {
        const struct object object = load(paths[i % 2]);
        const uint64_t before = figures_of(owners[i % 2]).alloc_count;
        uint64_t what = 0;
        same += *(void *const *)&object.take == last;
        last = *(void *const *)&object.take;
        for (int k = 0; k < 4; k++) {
            EXPECT(object.take(k % 2 == 0 ? "plain" : "runtime", BLOCK, &what) == 0);
            EXPECT(live_of(owners[i % 2]) == BLOCK);
            EXPECT(object.give("plain", what) == 0);
        }
        EXPECT(figures_of(owners[i % 2]).alloc_count == before + 4);
        EXPECT(dlclose(object.library) == 0);
    }
    printf("%d\n", same);
}

static void *allocate_on(void *argument)
{
    const struct object *object = argument;
    uint64_t what = 0;
    program_start();
    for (int i = 0; i < 2000; i++) {
        EXPECT(object->take("plain", BLOCK, &what) == 0);
        EXPECT(object->give("plain", what) == 0);
    }
    return NULL;
}

/* An object whose constructor allocates, loaded while another thread allocates. */
static void early(const struct object *one, const char *path)
{
    const gpucache_tenant second = find("two");
    pthread_t thread;
    program_start();
    EXPECT(pthread_create(&thread, NULL, allocate_on, (void *)(uintptr_t)one) == 0);
    setenv("TENANT_EARLY", "runtime", 1);
    const struct object two = load(path);
    EXPECT(*two.early != 0 && live_of(second) == MIB);
    pthread_join(thread, NULL);
    EXPECT(live_of(find("one")) == 0);
}

/* The expected figures of its report and of top: one has two blocks and a third idle, two has four
 * and was refused one. Allocation calls make the figures known. */
static void shown(const struct object *one, const struct object *two)
{
    uint64_t what;
    program_start();
    for (int i = 0; i < 4; i++)
        EXPECT(two->take("plain", BLOCK, &what) == 0);
    EXPECT(two->take("plain", 5 * BLOCK, &what) == CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < 3; i++)
        EXPECT(one->take("plain", BLOCK, &what) == 0);
    for (int i = 0; i < 300; i++) {
        EXPECT(one->give("plain", what) == 0);
        EXPECT(one->take("plain", BLOCK, &what) == 0);
    }
    EXPECT(one->give("async", what) == 0);
    printf("ready\n");
    fflush(stdout);
    (void)getchar();
}

int main(int argc, char **argv)
{
    struct object objects[2] = {{NULL}, {NULL}};
    const bool loads_itself =
        argc > 1 && (strcmp(argv[1], "reload") == 0 || strcmp(argv[1], "early") == 0);
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"api", api},
                 {"limits", limits},
                 {"frees", frees},
                 {"ranges", ranges},
                 {"capacities", capacities},
                 {"devices", devices},
                 {"churn", churn},
                 {"info", info},
                 {"off", off},
                 {"forked", forked}};
    EXPECT(argc > 1);
    EXPECT(gpucache_load(NULL, &gc) == GPUCACHE_OK);
    for (int i = 0; i < 2 && i + 2 < argc && !(loads_itself && (i == 1 || argv[1][0] == 'r')); i++)
        objects[i] = load(argv[i + 2]);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            return EXIT_SUCCESS;
        }
    if (strcmp(argv[1], "ways") == 0)
        every_way(&objects[0]);
    else if (strcmp(argv[1], "switches") == 0)
        switches(&objects[0]);
    else if (strcmp(argv[1], "rules") == 0)
        rules(&objects[0], &objects[1]);
    else if (strcmp(argv[1], "reload") == 0)
        reload(argv + 2);
    else if (strcmp(argv[1], "early") == 0)
        early(&objects[0], argv[3]);
    else if (strcmp(argv[1], "shown") == 0)
        shown(&objects[0], &objects[1]);
    else
        return EXIT_FAILURE;
    return EXIT_SUCCESS;
}
