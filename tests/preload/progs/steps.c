/* link: -l:libcuda.so.1 */
/* A loop as a training program runs it. usage: steps STEPS SEED [DEPART_PCT [STREAMS]]
 *
 * Weights, then STEPS steps: layers forward, each with what it keeps and something for a moment;
 * the loss, whose predecessor goes when it is there; layers backward with gradients, which the next
 * step frees first. In the first step the optimizer's states are made. All blocks are filled by
 * work on a stream and looked at before they are freed, on the same stream, while later work is
 * queued. DEPART_PCT of the layers take something more in between, of any size. With several
 * STREAMS the moment's blocks are taken and freed in the order of a stream. Prints `blocks N
 * departures N`. */
#include "program.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define LAYERS 12
#define STREAMS_MAX 4
#define WINDOW ((size_t)64)

struct block {
    CUdeviceptr address;
    size_t bytes;
    unsigned mark;
    bool is_ordered;
};

static CUstream streams[STREAMS_MAX];
static unsigned stream_count, next_mark = 1;
static unsigned long block_count, deviation_count;
static uint64_t state;

static size_t pick(size_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (size_t)(state >> 11) % below;
}

/* Sizes of a layer, always the same. */
static size_t size_of(unsigned layer, unsigned kind)
{
    return (size_t)((layer * 37 + kind * 91) % 64 + 1) * 24 * 1024 + kind * 512;
}

static void fill(const struct block *block, CUstream stream)
{
    CHECK(cuMemsetD8Async(block->address, (unsigned char)block->mark, WINDOW, stream));
    CHECK(cuMemsetD8Async(block->address + block->bytes - WINDOW, (unsigned char)block->mark,
                          WINDOW, stream));
}

static struct block take(size_t bytes, CUstream stream)
{
    struct block block = {.bytes = bytes, .mark = next_mark++, .is_ordered = stream_count > 1};

    if (block.is_ordered)
        CHECK(cuMemAllocAsync(&block.address, bytes, stream));
    else
        CHECK(cuMemAlloc(&block.address, bytes));
    block_count++;
    fill(&block, stream);
    return block;
}

static void look_at(CUdeviceptr address, unsigned mark, CUstream stream)
{
    unsigned char bytes[WINDOW];

    CHECK(cuMemcpyDtoHAsync(bytes, address, WINDOW, stream));
    CHECK(cuStreamSynchronize(stream));
    for (size_t i = 0; i < WINDOW; i++)
        if (bytes[i] != (unsigned char)mark) {
            fprintf(stderr, "corrupt: a block of mark %u holds %u\n", mark, bytes[i]);
            exit(EXIT_FAILURE);
        }
}

/* Then work is queued that the free must not overtake. */
static void leave(struct block *block, CUstream stream)
{
    look_at(block->address, block->mark, stream);
    look_at(block->address + block->bytes - WINDOW, block->mark, stream);
    CHECK(cuMemsetD8Async(block->address, 0xee, block->bytes, stream));
    if (block->is_ordered)
        CHECK(cuMemFreeAsync(block->address, stream));
    else
        CHECK(cuMemFree(block->address));
}

static CUstream stream_of(unsigned layer)
{
    return stream_count > 1 ? streams[layer % stream_count] : streams[0];
}

static void deviate(unsigned layer, unsigned percent)
{
    if (pick(100) >= percent)
        return;
    struct block block = take(WINDOW * 2 + pick((size_t)4 << 20), stream_of(layer));
    leave(&block, stream_of(layer));
    deviation_count++;
}

static struct block kept[LAYERS], gradients[LAYERS], weights[LAYERS], states[2 * LAYERS], loss;

static void forward(unsigned percent)
{
    for (unsigned i = 0; i < LAYERS; i++) {
        kept[i] = take(size_of(i, 1), stream_of(i));
        struct block moment = take(size_of(i, 2), stream_of(i));
        deviate(i, percent);
        leave(&moment, stream_of(i));
    }
}

static void backward(void)
{
    for (unsigned i = LAYERS; i-- > 0;) {
        struct block moment = take(size_of(i, 3), stream_of(i));
        gradients[i] = take(size_of(i, 0), stream_of(i));
        leave(&moment, stream_of(i));
        leave(&kept[i], stream_of(i));
    }
}

static void step(unsigned number, unsigned percent)
{
    for (unsigned i = 0; number > 0 && i < LAYERS; i++)
        leave(&gradients[i], stream_of(i));
    forward(percent);
    struct block next = take(512, streams[0]);
    if (number > 0)
        leave(&loss, streams[0]);
    loss = next;
    backward();
    for (unsigned i = 0; number == 0 && i < 2 * LAYERS; i++)
        states[i] = take(size_of(i / 2, 0), stream_of(i / 2));
}

static void finish(void)
{
    for (unsigned i = 0; i < LAYERS; i++) {
        leave(&gradients[i], stream_of(i));
        leave(&weights[i], stream_of(i));
    }
    for (unsigned i = 0; i < 2 * LAYERS; i++)
        leave(&states[i], stream_of(i / 2));
    leave(&loss, streams[0]);
}

int main(int argc, char **argv)
{
    const unsigned steps = (unsigned)strtoul(argv[1], NULL, 10);
    const unsigned percent = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
    CUcontext context;
    CUdevice device;

    state = strtoull(argv[2], NULL, 10) * 2 + 1;
    stream_count = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 1;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < stream_count; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < LAYERS; i++)
        weights[i] = take(size_of(i, 0), stream_of(i));
    for (unsigned i = 0; i < steps; i++)
        step(i, percent);
    finish();
    printf("blocks %lu departures %lu\n", block_count, deviation_count);
    return 0;
}
