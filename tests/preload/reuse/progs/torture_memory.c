/* Blocks: taken in every way, freed with their work still queued, handed on, shown to others. */
#include "torture.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#define PAGE_BYTES ((size_t)4096) /* what is exported is of whole pages */

/* ---- taken ---- */

/* Few sizes, so that freed memory is soon another block. */
static size_t some_size(struct worker *worker)
{
    static const size_t sizes[] = {512, 4096, 20000, 65536, 300000, 1u << 20};
    static const size_t big[] = {2u << 20, 3u << 20, 6u << 20, 12u << 20, 24u << 20};
    const unsigned percent = (unsigned)pick(worker, 100);

    if (percent < 15)
        return 1 + pick(worker, 3000);
    if (percent < 85 || !with(worker, WITH_big))
        return sizes[pick(worker, sizeof(sizes) / sizeof(sizes[0]))];
    return big[pick(worker, sizeof(big) / sizeof(big[0]))];
}

static void choose_rows(struct worker *worker, struct block *block)
{
    if (block->bytes <= WATCHED || chance(worker, 30)) {
        block->width = block->bytes < WATCHED ? block->bytes : WATCHED;
        block->pitch = block->bytes;
        block->height = 1;
        return;
    }
    block->width = ROW_BYTES;
    block->height = WATCHED / ROW_BYTES;
    block->pitch = (block->bytes - ROW_BYTES) / (block->height - 1) & ~(size_t)7;
    if (block->pitch < ROW_BYTES)
        block->pitch = ROW_BYTES;
    while ((block->height - 1) * block->pitch + ROW_BYTES > block->bytes)
        block->height--;
}

static CUresult take_pitched(struct worker *worker, struct block *block)
{
    const bool is_again = block->pitch != 0;
    const size_t width = is_again ? block->pitch : ROW_BYTES + pick(worker, 6000);
    const size_t height = is_again ? block->bytes / block->pitch : 2 + pick(worker, 30);
    CUresult result = cuMemAllocPitch(&block->address, &block->pitch, width, height, 4);

    block->bytes = block->pitch * height;
    block->width = ROW_BYTES;
    block->height = height;
    return result;
}

static CUresult take_ordered(struct worker *worker, struct block *block)
{
    const struct world *world = worker->world;
    const unsigned lane = some_lane(worker, block->context);
    const struct calls *calls = some_calls(worker);
    CUmemoryPool pool = block->how == BY_POOL ? world->pools[1] : NULL;
    CUresult result =
        calls->take(&block->address, block->bytes, pool, stream_of(worker, lane, calls));

    if (result == CUDA_SUCCESS)
        note_write(block, add_work(worker, lane));
    return result;
}

static enum how some_way(struct worker *worker, unsigned device)
{
    static const enum aspect wanted[] = {ASPECTS, WITH_runtime, WITH_pitch, WITH_ordered,
                                         WITH_pools};
    const enum how how = chance(worker, 35) ? BY_DRIVER : (enum how)pick(worker, HOW_COUNT);

    if (how == BY_DRIVER || !with(worker, wanted[how]) || (how == BY_POOL && device != 0))
        return BY_DRIVER;
    return how;
}

static CUresult take_memory(struct worker *worker, struct block *block)
{
    if (block->how == BY_PITCH)
        return take_pitched(worker, block);
    if (block->height == 0)
        choose_rows(worker, block);
    switch (block->how) {
    case BY_RUNTIME:
        return cudaMalloc((void **)&block->address, block->bytes) == cudaSuccess
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_OUT_OF_MEMORY;
    case BY_DRIVER:
        return cuMemAlloc(&block->address, block->bytes);
    default:
        return take_ordered(worker, block);
    }
}

/* Takes memory for the block, which has the way, the size and the context. */
static bool take_so(struct worker *worker, struct block *block)
{
    enter(worker, block->context);
    const CUresult result = take_memory(worker, block);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        atomic_fetch_add(&worker->world->refused, 1);
        block->address = 0;
        return false;
    }
    CHECK(result);
    return true;
}

bool take_block(struct worker *worker, struct block *block)
{
    const unsigned context = some_context(worker);

    *block = (struct block){.context = context, .device = worker->world->contexts[context].device};
    block->how = some_way(worker, block->device);
    block->bytes = some_size(worker);
    return take_so(worker, block);
}

bool take_again(struct worker *worker, struct block *block)
{
    *block = (struct block){.context = block->context,
                            .device = block->device,
                            .how = block->how,
                            .bytes = block->bytes,
                            .width = block->width,
                            .pitch = block->pitch,
                            .height = block->height};
    return take_so(worker, block);
}

bool may_touch(const struct worker *worker, const struct block *block, unsigned context,
               unsigned ways)
{
    const struct world *world = worker->world;
    const bool by_copy = (ways & ~(unsigned)(TO_FILL | ANY_VALUE)) != 0;

    if (context == block->context)
        return true;
    if (worker->graph_way != 0)
        ways = worker->graph_way;
    if (!with(worker, WITH_foreign) || (world->foreign & ways) == 0)
        return false;
    if (world->contexts[context].device == block->device)
        return true;
    if (block->how == BY_STREAM || block->how == BY_POOL)
        return block->device == 0 && world->is_open_to_other[block->how == BY_POOL];
    return by_copy || world->has_peers;
}

/* ---- freed ---- */

static unsigned context_to_free_in(struct worker *worker, const struct block *block)
{
    const unsigned context = some_context(worker);

    return with(worker, WITH_foreign) && worker->world->contexts[context].device == block->device
               ? context
               : block->context;
}

static void give_in_order(struct worker *worker, struct block *block)
{
    const bool is_the_devices = block->how == BY_STREAM || block->how == BY_POOL;
    /* Memory of a context is freed in its own streams: before the context ends. */
    const unsigned lane =
        some_lane(worker, is_the_devices ? context_to_free_in(worker, block) : block->context);
    const struct calls *calls = some_calls(worker);

    order_write(worker, lane, block);
    enter(worker, context_of(lane));
    CHECK(calls->give(block->address, stream_of(worker, lane, calls)));
    add_work(worker, lane);
}

void give_block(struct worker *worker, struct block *block)
{
    const bool is_ordered = block->how == BY_STREAM || block->how == BY_POOL;
    const bool is_drawn = with(worker, WITH_mixed) && chance(worker, 20);
    const bool is_mixed = worker->is_holding ? !is_ordered : is_drawn; /* nothing that waits */

    spend_graphs(worker, block);
    if (is_ordered != is_mixed) {
        give_in_order(worker, block);
    } else {
        release_hold(worker);
        if (is_ordered) /* its free waits for nothing */
            wait_for_block(worker, block);
        enter(worker, context_to_free_in(worker, block));
        if (block->how == BY_RUNTIME || (with(worker, WITH_runtime) && chance(worker, 20)))
            CHECK((CUresult)cudaFree((void *)(uintptr_t)block->address));
        else
            CHECK(cuMemFree(block->address));
    }
    block->address = 0;
}

/* ---- handed on ---- */

/* The block at a place that both agree on; all its work is before an event. */
void hand_over(struct worker *worker, struct block **to)
{
    struct block **slot = &worker->slots[0], *block = *slot;

    if (block->address != 0) {
        const unsigned lane = some_lane(worker, block->context);

        spend_graphs(worker, block);
        order_write(worker, lane, block);
        enter(worker, context_of(lane));
        CHECK(cuEventCreate(&block->handed, CU_EVENT_DISABLE_TIMING));
        CHECK(cuEventRecord(block->handed, stream_of(worker, lane, &legacy_calls)));
    }
    *to = block;
    *slot = NULL;
}

void receive(struct worker *worker, struct block *block)
{
    worker->slots[0] = block;
    block->write = (struct access){0, 0};
    block->read_count = 0;
    if (block->address == 0)
        return;
    if (worker->index != 0 && worker->world->contexts[block->context].green != NULL)
        block->context = block->device == 0 ? 0 : 2; /* its primary context, whose the memory is */
    const unsigned lane = some_lane(worker, block->context);
    wait_on(worker, lane, block->handed);
    CHECK(cuEventDestroy(block->handed));
    if (block->is_written)
        check_block(worker, lane, block);
    note_write(block, add_work(worker, lane));
}

/* ---- shown to others ---- */

/* A device outside writes it, as a network card does: in no stream. The program lets it only when
 * nothing of its own is under way, which a block that was just allocated needs no wait for. */
void export_block(struct worker *worker, struct block *block)
{
    const uint32_t word = tag(worker);
    int fd = -1;

    if (block->how == BY_STREAM || block->how == BY_POOL || block->bytes < 3 * PAGE_BYTES ||
        block->width % 4 != 0)
        return;
    wait_for_block(worker, block);
    enter(worker, block->context);
    if (!block->is_exported) {
        const CUdeviceptr first = (block->address + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
        const CUdeviceptr end = (block->address + block->bytes) / PAGE_BYTES * PAGE_BYTES;
        if (cuMemGetHandleForAddressRange(&fd, first, end - first,
                                          CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) != CUDA_SUCCESS)
            return;
        block->is_exported = true;
        close(fd);
    }
    for (size_t i = 0; i < block->height; i++)
        for (size_t j = 0; j < block->width; j += 4)
            memcpy((void *)(uintptr_t)(block->address + i * block->pitch + j), &word, 4);
    for (size_t i = 0; i < block->width * block->height / 4; i++)
        memcpy(block->model + i * 4, &word, 4);
    block->is_written = true;
}

void ask_for_handle(struct worker *worker, struct block *block)
{
    CUresult (*get_handle)(CUipcMemHandle * handle, CUdeviceptr address);
    CUipcMemHandle handle;

    if (block->how == BY_STREAM || block->how == BY_POOL)
        return;
    enter(worker, block->context);
    /* A program that imports it has each block as an allocation of its own from the start. */
    *(void **)&get_handle = dlsym(RTLD_DEFAULT, "cuIpcGetMemHandle");
    CHECK(get_handle(&handle, block->address));
}
