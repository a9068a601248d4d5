/* Contexts, streams, pools and peers: made, opened to each other, ended and made anew. Threads work
 * in rounds; between two of them one thread changes the common state, by the seed and the
 * iteration. */
#include "torture.h"

#include <dlfcn.h>

unsigned some_context(struct worker *worker)
{
    const unsigned first = (unsigned)pick(worker, CONTEXTS);

    for (unsigned i = 0; i < CONTEXTS; i++) {
        const unsigned index = (first + i) % CONTEXTS;
        const struct context *context = &worker->world->contexts[index];
        /* A green context is current to one thread at a time. */
        if (context->handle != NULL && (context->green == NULL || worker->index == 0))
            return index;
    }
    return 0;
}

/* ---- contexts ---- */

static bool make_green(struct context *context)
{
    CUresult (*get)(CUdevice, CUdevResource *, CUdevResourceType) = NULL;
    CUresult (*describe)(CUdevResourceDesc *, CUdevResource *, unsigned) = NULL;
    CUresult (*create)(CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned) = NULL;
    CUresult (*convert)(CUcontext *, CUgreenCtx) = NULL;
    CUdevResource resource;
    CUdevResourceDesc description;

    *(void **)&get = dlsym(RTLD_DEFAULT, "cuDeviceGetDevResource");
    *(void **)&describe = dlsym(RTLD_DEFAULT, "cuDevResourceGenerateDesc");
    *(void **)&create = dlsym(RTLD_DEFAULT, "cuGreenCtxCreate");
    *(void **)&convert = dlsym(RTLD_DEFAULT, "cuCtxFromGreenCtx");
    if (get == NULL || describe == NULL || create == NULL || convert == NULL ||
        get((CUdevice)context->device, &resource, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS)
        return false;
    CHECK(describe(&description, &resource, 1));
    CHECK(create(&context->green, description, (CUdevice)context->device,
                 CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK(convert(&context->handle, context->green));
    return true;
}

static bool make_for_graphics(struct context *context, bool is_gl)
{
    CUresult (*create_gl)(CUcontext *, unsigned, CUdevice) = NULL;
    CUresult (*create_vdpau)(CUcontext *, unsigned, CUdevice, uint32_t, void *) = NULL;
    CUresult result;

    *(void **)&create_gl = dlsym(RTLD_DEFAULT, "cuGLCtxCreate_v2");
    *(void **)&create_vdpau = dlsym(RTLD_DEFAULT, "cuVDPAUCtxCreate_v2");
    if (create_gl == NULL || create_vdpau == NULL)
        return false;
    result = is_gl ? create_gl(&context->handle, 0, (CUdevice)context->device)
                   : create_vdpau(&context->handle, 0, (CUdevice)context->device, 0, NULL);
    return result == CUDA_SUCCESS;
}

static void make_context(struct world *world, unsigned index, uint64_t choice)
{
    struct context *context = &world->contexts[index];

    context->green = NULL;
    if (context->is_primary)
        CHECK(cuDevicePrimaryCtxRetain(&context->handle, (CUdevice)context->device));
    else if ((!world->with[WITH_green] || choice % 3 != 0 || !make_green(context)) &&
             (!world->with[WITH_graphics] || choice % 3 != 1 ||
              !make_for_graphics(context, choice % 2 == 0)))
        CHECK(cuCtxCreate(&context->handle, NULL, 0, (CUdevice)context->device));
    CHECK(cuCtxSetCurrent(context->handle));
    if (!world->with[WITH_shared])
        return;
    CHECK(cuStreamCreate(&context->shared[0],
                         context->green != NULL ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&context->shared[1], CU_STREAM_NON_BLOCKING));
}

static void end_streams(const struct world *world, const struct context *context)
{
    CHECK(cuCtxSetCurrent(context->handle));
    for (unsigned i = 0; i < 2 && world->with[WITH_shared]; i++)
        CHECK(cuStreamDestroy(context->shared[i]));
}

static void end_context(const struct world *world, struct context *context)
{
    CUresult (*destroy_green)(CUgreenCtx) = NULL;

    end_streams(world, context);
    CHECK(cuCtxSetCurrent(NULL));
    *(void **)&destroy_green = dlsym(RTLD_DEFAULT, "cuGreenCtxDestroy");
    if (context->is_primary)
        CHECK(cuDevicePrimaryCtxRelease((CUdevice)context->device));
    else if (context->green != NULL)
        CHECK(destroy_green(context->green));
    else
        CHECK(cuCtxDestroy(context->handle));
    context->handle = NULL;
}

/* ---- what contexts of two devices may reach ---- */

/* Whether each device may reach the other's memory; also true if there is one device alone. */
static bool are_peers(const struct world *world)
{
    int can = 1, can_back = 1;

    if (world->device_count > 1) {
        CHECK(cuDeviceCanAccessPeer(&can, 0, 1));
        CHECK(cuDeviceCanAccessPeer(&can_back, 1, 0));
    }
    return can && can_back;
}

static void enable_peers(struct world *world)
{
    if (!are_peers(world))
        return;
    for (unsigned i = 0; i < CONTEXTS; i++)
        for (unsigned j = 0; j < CONTEXTS; j++) {
            const struct context *one = &world->contexts[i], *other = &world->contexts[j];
            if (one->handle == NULL || other->handle == NULL || one->device == other->device)
                continue;
            CHECK(cuCtxSetCurrent(one->handle));
            const CUresult result = cuCtxEnablePeerAccess(other->handle, 0);
            if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
                CHECK(result);
        }
    world->has_peers = true;
}

static void open_pool(struct world *world, unsigned index)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    if (!are_peers(world))
        return;
    CHECK(cuMemPoolSetAccess(world->pools[index], &access, 1));
    world->is_open_to_other[index] = true;
}

/* ---- beginning and end ---- */

/* All ways to another context's memory, or a few. */
static unsigned some_ways(uint64_t seed)
{
    uint64_t state = mix(seed + 77);
    unsigned ways = 0;

    if (pick_from(&state, 100) < 25)
        return TO_ALL;
    for (uint64_t i = 1 + pick_from(&state, 3); i > 0; i--)
        ways |= 1u << pick_from(&state, 11);
    return ways;
}

void open_world(struct world *world)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const bool *wanted = world->with;
    int count;

    CHECK(cuInit(0));
    CHECK(cuDriverGetVersion(&world->driver_version));
    CHECK(cuDeviceGetCount(&count));
    world->foreign =
        getenv("TORTURE_WAYS") ? (unsigned)atoi(getenv("TORTURE_WAYS")) : some_ways(world->seed);
    world->with[WITH_runtime] =
        wanted[WITH_runtime] && world->driver_version >= 13000; /* its own */
    world->with[WITH_captures] = wanted[WITH_captures] && wanted[WITH_streams];
    world->device_count = count > 1 && wanted[WITH_devices] ? 2 : 1;
    const unsigned last = world->device_count - 1;
    const struct context places[CONTEXTS] = {{.is_primary = true},
                                             {.device = 0},
                                             {.device = last, .is_primary = true},
                                             {.device = last}};
    for (unsigned i = 0; i < CONTEXTS; i++) {
        world->contexts[i] = places[i];
        if (i == 2 && last == 0)
            world->contexts[i].is_primary = false;
        if (i == 0 ||
            (i == 1 && (wanted[WITH_contexts] || wanted[WITH_green] || wanted[WITH_graphics])) ||
            (i == 2 && (last > 0 || wanted[WITH_contexts])) || (i == 3 && wanted[WITH_contexts]))
            make_context(world, i, mix(world->seed + i));
    }
    CHECK(cuCtxSetCurrent(world->contexts[0].handle));
    CHECK(cuDeviceGetDefaultMemPool(&world->pools[0], 0));
    if (wanted[WITH_pools])
        CHECK(cuMemPoolCreate(&world->pools[1], &props));
    for (unsigned i = 0; i < CONTEXTS; i++)
        pthread_rwlock_init(&world->captures[i], NULL);
    pthread_barrier_init(&world->barrier, NULL, world->thread_count);
}

void close_world(struct world *world)
{
    if (world->pools[1] != NULL)
        CHECK(cuMemPoolDestroy(world->pools[1]));
    for (unsigned i = CONTEXTS; i-- > 1;)
        if (world->contexts[i].handle != NULL)
            end_context(world, &world->contexts[i]);
    end_streams(world, &world->contexts[0]);
    CHECK(cuCtxSynchronize());
}

/* ---- a thread's streams ---- */

void open_lanes(struct worker *worker, unsigned context)
{
    const struct context *own = &worker->world->contexts[context];
    struct lane *lanes = &worker->lanes[context * STREAMS];

    if (own->handle == NULL || (own->green != NULL && worker->index != 0))
        return;
    enter(worker, context);
    for (unsigned i = LEGACY; i < PASSING; i++) {
        lanes[i].is_open = own->green == NULL || i != PER_THREAD; /* which it does not have */
        /* It is not documented with which streams a green context's default stream is ordered. */
        lanes[i].is_blocking =
            own->green == NULL && (i == PER_THREAD || i == BLOCKING || i == OWN_BLOCKING);
        lanes[i].next = lanes[i].tail = worker->host;
    }
    lanes[BLOCKING].stream = own->shared[0];
    lanes[NON_BLOCKING].stream = own->shared[1];
    if (!with(worker, WITH_streams))
        return;
    CHECK(cuStreamCreate(&lanes[OWN].stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&lanes[SECOND_OWN].stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&lanes[OWN_BLOCKING].stream,
                         own->green != NULL ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
}

static void close_lanes(struct worker *worker, unsigned context)
{
    struct lane *lanes = &worker->lanes[context * STREAMS];

    if (!lanes[LEGACY].is_open)
        return;
    wait_for_context(worker, context);
    if (lanes[PASSING].is_open)
        close_passing(worker, context);
    if (lanes[PASSING].last != NULL)
        CHECK(cuEventDestroy(lanes[PASSING].last));
    lanes[PASSING].last = NULL;
    for (unsigned i = OWN; i < PASSING && with(worker, WITH_streams); i++)
        CHECK(cuStreamDestroy(lanes[i].stream));
    for (unsigned i = 0; i < EVENTS; i++) {
        if (worker->events[context][i] != NULL)
            CHECK(cuEventDestroy(worker->events[context][i]));
        worker->events[context][i] = NULL;
    }
    for (unsigned i = 0; i < STREAMS; i++)
        lanes[i].is_open = false;
}

void open_worker(struct worker *worker)
{
    const unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;

    worker->context = CONTEXTS;
    enter(worker, 0);
    CHECK(cuMemHostAlloc((void **)&worker->flag, 64, flags));
    CHECK(cuMemHostGetDevicePointer(&worker->flag_address, worker->flag, 0));
    *worker->flag = 0;
    for (unsigned i = 0; i < CHECKS; i++)
        CHECK(cuMemHostAlloc((void **)&worker->checks[i].data, WATCHED, flags));
    for (unsigned i = 0; i < STAGES; i++)
        CHECK(cuMemHostAlloc((void **)&worker->stages[i].data, ROW_BYTES, flags));
    for (unsigned i = 0; i < GRAPHS; i++)
        for (unsigned j = 0; j < NODES; j++)
            CHECK(cuMemHostAlloc((void **)&worker->graphs[i].stages[j], ROW_BYTES, flags));
    for (unsigned i = 0; i < SLOTS; i++)
        worker->slots[i] = calloc(1, sizeof(*worker->slots[i]));
    for (unsigned i = 0; i < CONTEXTS; i++)
        open_lanes(worker, i);
}

void close_worker(struct worker *worker)
{
    release_hold(worker);
    for (unsigned i = 0; i < SLOTS; i++)
        if (worker->slots[i]->address != 0)
            give_block(worker, worker->slots[i]);
    end_checks(worker);
    for (unsigned i = 0; i < GRAPHS; i++)
        drop_graph(worker, &worker->graphs[i]);
    for (unsigned i = 0; i < CONTEXTS; i++)
        close_lanes(worker, i);
    enter(worker, 0);
    for (unsigned i = 0; i < CHECKS; i++)
        CHECK(cuMemFreeHost(worker->checks[i].data));
    for (unsigned i = 0; i < STAGES; i++)
        CHECK(cuMemFreeHost(worker->stages[i].data));
    for (unsigned i = 0; i < GRAPHS; i++)
        for (unsigned j = 0; j < NODES; j++)
            CHECK(cuMemFreeHost(worker->graphs[i].stages[j]));
    CHECK(cuMemFreeHost(worker->flag));
    CHECK(cuCtxSetCurrent(NULL));
}

/* ---- between two rounds ---- */

struct plan {
    unsigned ended; /* context; CONTEXTS: none */
    bool opens_pool[2], enables_peers, hands_over;
    uint64_t choice;
};

static struct plan plan_of(const struct world *world, uint64_t round)
{
    uint64_t state = mix(world->seed * 1000003 + round);
    const bool has_two = world->device_count > 1;
    struct plan plan = {.ended = CONTEXTS, .choice = mix(state)};
    const unsigned context = 1 + (unsigned)pick_from(&state, CONTEXTS - 1);

    if (world->with[WITH_ends] && pick_from(&state, 100) < 40 &&
        world->contexts[context].handle != NULL && !world->contexts[context].is_primary)
        plan.ended = context;
    for (unsigned i = 0; i < 2; i++)
        plan.opens_pool[i] = world->with[WITH_access] && has_two && world->pools[i] != NULL &&
                             !world->is_open_to_other[i] && pick_from(&state, 100) < 30;
    plan.enables_peers = world->with[WITH_peers] && has_two && pick_from(&state, 100) < 25;
    plan.hands_over = world->with[WITH_handing] && plan.ended == CONTEXTS;
    return plan;
}

/* Stream-ordered memory is its device's, a green context's its primary one's: it stays. Some of the
 * rest is freed, some is destroyed with the context. */
static void leave_block(struct worker *worker, struct block *block)
{
    const struct world *world = worker->world;
    const struct context *context = &world->contexts[block->context];

    if (block->how == BY_STREAM || block->how == BY_POOL || context->green != NULL) {
        for (unsigned i = 0; i < CONTEXTS; i++)
            if (i != block->context && world->contexts[i].handle != NULL &&
                world->contexts[i].green == NULL && world->contexts[i].device == block->device) {
                block->context = i;
                return;
            }
    }
    if (chance(worker, 50)) {
        give_block(worker, block);
        return;
    }
    wait_for_block(worker, block);
    block->address = 0;
}

void leave(struct worker *worker, uint64_t round)
{
    const struct plan plan = plan_of(worker->world, round);

    release_hold(worker);
    if (plan.ended < CONTEXTS) {
        end_checks(worker);
        for (unsigned i = 0; i < GRAPHS; i++) { /* their nodes may be of the context */
            drop_graph(worker, &worker->graphs[i]);
            wait_for(worker, worker->graphs[i].launched);
        }
        for (unsigned i = 0; i < SLOTS; i++)
            if (worker->slots[i]->address != 0 && worker->slots[i]->context == plan.ended)
                leave_block(worker, worker->slots[i]);
        close_lanes(worker, plan.ended);
        enter(worker, 0);
    }
    if (plan.hands_over)
        hand_over(
            worker,
            &worker->world->handed[round % 2][(worker->index + 1) % worker->world->thread_count]);
}

void change(struct worker *worker, uint64_t round)
{
    struct world *world = worker->world;
    const struct plan plan = plan_of(world, round);

    if (plan.ended < CONTEXTS) {
        end_context(world, &world->contexts[plan.ended]);
        make_context(world, plan.ended, plan.choice);
        if (world->has_peers)
            enable_peers(world);
    }
    if (plan.enables_peers)
        enable_peers(world);
    for (unsigned i = 0; i < 2; i++)
        if (plan.opens_pool[i])
            open_pool(world, i);
    CHECK(cuCtxSetCurrent(world->contexts[0].handle));
    worker->context = 0;
}

void take_up(struct worker *worker, uint64_t round)
{
    struct block **handed = &worker->world->handed[round % 2][worker->index];

    for (unsigned i = 0; i < CONTEXTS; i++)
        if (!worker->lanes[i * STREAMS].is_open)
            open_lanes(worker, i);
    if (*handed != NULL)
        receive(worker, *handed);
    *handed = NULL;
}
