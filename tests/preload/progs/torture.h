/* The parts of the torture test: what is known of a block, how it is written, how what was read of
 * it is checked.
 *
 * A block is written with a number of its own: whole if it is small, else in windows all over it. A
 * check queues a copy of these places to pinned memory; the result is looked at when the copy is
 * done, often long after the block was freed. So it tells of writes of the block that came too late
 * into other blocks, and of others' that came too early into this one. */
#ifndef TORTURE_H
#define TORTURE_H

#include "program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define CONTEXTS 2
#define SHARED_STREAMS 4 /* of a context: two blocking, two not */
#define SLOTS 20         /* blocks of a thread */
#define CHECKS 48        /* checks of a thread under way */
#define CHECK_BYTES ((size_t)64 << 10)
#define WHOLE_BYTES 4096 /* up to this a block is always written whole */
#define WINDOW_BYTES 64
#define WINDOWS 32

#define STREAM_NONE ((CUstream)(uintptr_t)UINTPTR_MAX)

/* The places of a block that are written and read: rows of one size at equal distances. */
struct shape {
    size_t width, pitch, height;
};

enum how { BY_DRIVER, BY_RUNTIME, BY_PITCH, BY_STREAM, HOW_COUNT };

struct block {
    CUdeviceptr address;
    size_t bytes;
    struct shape shape;
    enum how how;
    unsigned context;
    uint32_t number; /* what it was written with; 0: not yet */
    CUevent last;    /* behind its last work */
    CUstream last_stream;
    CUevent events[CONTEXTS];
};

struct check {
    uint32_t *data; /* CHECK_BYTES of pinned memory */
    size_t bytes;
    struct block block; /* as it was */
    CUevent done;       /* of the stream's context, one of `events` */
    CUevent events[CONTEXTS];
};

struct world {
    CUcontext contexts[CONTEXTS];
    CUstream streams[CONTEXTS][SHARED_STREAMS];
    pthread_rwlock_t captures[CONTEXTS]; /* read: a stream of it captures */
    pthread_mutex_t lock;
    struct block *box[8]; /* blocks on their way from thread to thread */
    uint64_t event_count; /* that each thread is to make */
    time_t end_time;
    bool with_runtime, with_peers, with_thread_streams;
    atomic_uint next_number;
    atomic_int wrong_count;
    atomic_uint_fast64_t events, work, refused, captured;
};

struct worker {
    struct world *world;
    unsigned index;
    uint64_t state; /* of the random numbers */
    unsigned context;
    CUstream own[CONTEXTS]; /* nobody else's, for captures */
    struct block *slots[SLOTS];
    struct check checks[CHECKS];
    unsigned first_check, check_count;
};

static inline uint64_t pick(struct worker *worker, uint64_t below)
{
    worker->state ^= worker->state << 13;
    worker->state ^= worker->state >> 7;
    worker->state ^= worker->state << 17;
    return (worker->state >> 11) % below;
}

static inline bool chance(struct worker *worker, unsigned percent)
{
    return pick(worker, 100) < percent;
}

static inline void enter(struct worker *worker, unsigned context)
{
    if (worker->context != context)
        CHECK(cuCtxSetCurrent(worker->world->contexts[context]));
    worker->context = context;
}

static inline struct shape shape_of(struct worker *worker, size_t bytes)
{
    struct shape shape = {bytes, bytes, 1};

    if (bytes <= WHOLE_BYTES || (bytes <= CHECK_BYTES && chance(worker, 25)))
        return shape;
    shape.width = WINDOW_BYTES;
    shape.height = WINDOWS;
    shape.pitch = (bytes - WINDOW_BYTES) / (WINDOWS - 1) & ~(size_t)3;
    return shape;
}

static inline CUstream some_stream(struct worker *worker, unsigned context)
{
    const uint64_t choice = pick(worker, SHARED_STREAMS + 3);

    if (choice < SHARED_STREAMS)
        return worker->world->streams[context][choice];
    if (choice == SHARED_STREAMS)
        return worker->own[context];
    return choice == SHARED_STREAMS + 1 && worker->world->with_thread_streams ? CU_STREAM_PER_THREAD
                                                                              : NULL;
}

/* Work of the block on `stream` comes behind its earlier work. */
static inline void order(struct block *block, CUstream stream)
{
    if (block->last_stream != STREAM_NONE &&
        (block->last_stream != stream || stream == CU_STREAM_PER_THREAD))
        CHECK(cuStreamWaitEvent(stream, block->last, 0));
}

static inline void mark(struct block *block, CUstream stream)
{
    block->last = block->events[block->context];
    block->last_stream = stream;
    CHECK(cuEventRecord(block->last, stream));
}

/* The rows of two blocks may be copied if there are as many of one width. */
static inline CUDA_MEMCPY2D rows_of(const struct block *block)
{
    return (CUDA_MEMCPY2D){.WidthInBytes = block->shape.width, .Height = block->shape.height};
}

static inline void fill_on(const struct block *block, CUstream stream)
{
    const struct shape *shape = &block->shape;
    const unsigned char byte = (unsigned char)block->number;

    if (shape->width % 4 != 0)
        CHECK(cuMemsetD2D8Async(block->address, shape->pitch, byte, shape->width, shape->height,
                                stream));
    else
        CHECK(cuMemsetD2D32Async(block->address, shape->pitch, block->number, shape->width / 4,
                                 shape->height, stream));
}

static inline void fetch_on(const struct block *block, struct check *check, CUstream stream)
{
    CUDA_MEMCPY2D copy = rows_of(block);

    check->block = *block;
    check->bytes = block->shape.width * block->shape.height;
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = block->address;
    copy.srcPitch = block->shape.pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = check->data;
    copy.dstPitch = block->shape.width;
    CHECK(cuMemcpy2DAsync(&copy, stream));
}

static inline void complain(struct worker *worker, const struct check *check, size_t at)
{
    const struct block *block = &check->block;
    const unsigned char *bytes = (const unsigned char *)check->data;

    if (atomic_fetch_add(&worker->world->wrong_count, 1) >= 10)
        return;
    fprintf(stderr,
            "corrupt: thread %u block %u: byte %zu of the check is 0x%02x (of %08x); address "
            "0x%llx, %zu bytes, rows of %zu at %zu, way %d, context %u\n",
            worker->index, block->number, at, bytes[at], block->number,
            (unsigned long long)block->address, block->bytes, block->shape.width,
            block->shape.pitch, (int)block->how, block->context);
}

/* Looks at what the oldest check brought. */
static inline void end_check(struct worker *worker)
{
    struct check *check = &worker->checks[worker->first_check];
    const unsigned char *bytes = (const unsigned char *)check->data;
    const bool is_words = check->block.shape.width % 4 == 0;

    CHECK(cuEventSynchronize(check->done));
    for (size_t i = 0; i < check->bytes; i++) {
        const unsigned shift = is_words ? (unsigned)(i % 4) * 8 : 0;
        if (bytes[i] != (unsigned char)(check->block.number >> shift)) {
            complain(worker, check, i);
            break;
        }
    }
    worker->first_check = (worker->first_check + 1) % CHECKS;
    worker->check_count--;
}

static inline struct check *begin_check(struct worker *worker)
{
    while (worker->check_count >= CHECKS)
        end_check(worker);
    return &worker->checks[(worker->first_check + worker->check_count) % CHECKS];
}

/* The copy is queued, on `stream` of the context. */
static inline void await_check(struct worker *worker, struct check *check, unsigned context,
                               CUstream stream)
{
    check->done = check->events[context];
    CHECK(cuEventRecord(check->done, stream));
    worker->check_count++;
}

#endif
