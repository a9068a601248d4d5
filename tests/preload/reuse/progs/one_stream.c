/* link: -l:libcuda.so.1 -ldl */
/* Programs that plain CUDA runs to their end, and what they hold is right. usage: one_stream CASE
 *
 * All work goes to one stream at first, and memory is freed behind queued work. Then the stream
 * waits for the host (a host function that blocks), and
 *   work, destroy, capture, context: a second stream has its first work, the stream is destroyed,
 *     another begins a capture, a second context is made: none of it waits;
 * or the memory is reached outside all streams: its new life begins when the work of its old one
 * is done:
 *   export, flag, token, library: an exported range, SYNC_MEMOPS of a context, a token, a library
 *     of network cards (the second argument) is loaded; hidden: by a thread that ends then.
 *   harmless: a thread loads another library and ends: memory serves again as before
 * Streams that never end beside others:
 *   legacy: an allocation in the legacy stream orders blocking streams
 *   async, closing, thread: memory freed in the order of streams serves again although another
 *     stream never ends; with streams made and destroyed; in the threads' own streams
 *   plain: with memory freed plainly a request gets fresh memory in the end
 *   mixed: plain memory that is freed in a stream's order serves again */
#include "tests/preload/progs/program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define BYTES (4 * MIB)
#define SAMPLE 64

static sem_t gate;

static void wait_at_gate(void *unused)
{
    (void)unused;
    while (sem_wait(&gate) != 0)
        ;
}

static void block(CUstream stream)
{
    CHECK(cuLaunchHostFunc(stream, wait_at_gate, NULL));
}

static CUstream make_stream(unsigned flags)
{
    CUstream stream;
    CHECK(cuStreamCreate(&stream, flags));
    return stream;
}

static void require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    exit(EXIT_FAILURE);
}

static CUdeviceptr take(size_t bytes)
{
    CUdeviceptr address;
    CHECK(cuMemAlloc(&address, bytes));
    return address;
}

static void expect(CUdeviceptr address, unsigned char value, CUstream stream)
{
    static __thread unsigned char *seen; /* freeing it would wait for the device */
    if (seen == NULL)
        CHECK(cuMemHostAlloc((void **)&seen, SAMPLE, 0));
    memset(seen, 0xee, SAMPLE);
    CHECK(cuMemcpyDtoHAsync(seen, address, SAMPLE, stream));
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < SAMPLE; i++)
        require(seen[i] == value, "memory holds what another one wrote");
}

/* The memory is allocated again, with work of its former life in the stream. */
static CUdeviceptr take_again(CUstream stream, size_t bytes)
{
    CUdeviceptr first = take(bytes);
    CHECK(cuMemsetD8Async(first, 1, bytes, stream));
    CHECK(cuMemFree(first));
    return take(bytes);
}

static void end_of_one(const char *how)
{
    CUstream only = make_stream(CU_STREAM_NON_BLOCKING), other;
    CUdeviceptr again = take_again(only, BYTES);
    CUcontext context, made;
    CUgraph graph;
    block(only);
    if (strcmp(how, "destroy") == 0)
        CHECK(cuStreamDestroy(only));
    if (strcmp(how, "context") == 0) {
        CHECK(cuCtxGetCurrent(&context));
        CHECK(cuCtxCreate(&made, NULL, 0, 0));
        CHECK(cuCtxSetCurrent(context));
    }
    other = make_stream(CU_STREAM_NON_BLOCKING);
    if (strcmp(how, "capture") == 0) {
        CHECK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
        CHECK(cuStreamEndCapture(other, &graph));
        CHECK(cuGraphDestroy(graph));
    }
    CHECK(cuMemsetD8Async(again, 2, BYTES, other));
    expect(again, 2, other); /* while the first stream waits */
    sem_post(&gate);
    CHECK(cuCtxSynchronize());
    expect(again, 2, other);
    CHECK(cuMemFree(again));
}

static void *load(void *library)
{
    require(dlopen(library, RTLD_NOW) != NULL, "the library was not loaded");
    return NULL;
}

static void load_in_thread(char *library)
{
    pthread_t thread;
    require(pthread_create(&thread, NULL, load, library) == 0, "no thread");
    pthread_join(thread, NULL);
}

static void harmless(char *library)
{
    CUstream only = make_stream(CU_STREAM_NON_BLOCKING);
    load_in_thread(library);
    CUdeviceptr first = take(BYTES);
    block(only);
    CHECK(cuMemsetD8Async(first, 1, BYTES, only));
    CHECK(cuMemFree(first));
    CUdeviceptr next = take(BYTES);
    sem_post(&gate);
    require(next == first, "memory was not handed out in the order of the stream");
    CHECK(cuMemFree(next));
}

/* Accesses outside all streams must not find work of a former life under way. */
static void outside(const char *how, char *library)
{
    CUstream only = make_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr again = take_again(only, BYTES);
    int fd = -1;
    if (strcmp(how, "export") == 0)
        CHECK(cuMemGetHandleForAddressRange(&fd, again, BYTES, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                            0));
    if (strcmp(how, "flag") == 0)
        CHECK(cuCtxSetFlags(CU_CTX_SYNC_MEMOPS));
    if (strcmp(how, "token") == 0) {
        CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
        (void)cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, again);
    }
    if (strcmp(how, "library") == 0)
        load(library);
    if (strcmp(how, "hidden") == 0)
        load_in_thread(library);
    require(cuStreamQuery(only) == CUDA_SUCCESS, "work of a former life is under way");
    /* And so it stays, also after the thread's first call behind a load. */
    CHECK(cuMemFree(take(BYTES / 2)));
    CHECK(cuMemsetD8Async(again, 3, BYTES, only));
    CHECK(cuMemFree(again));
    CUdeviceptr next = take(BYTES);
    require(next != again || cuStreamQuery(only) == CUDA_SUCCESS,
            "memory was handed out in the order of a stream");
    CHECK(cuMemFree(next));
}

static void legacy(void)
{
    CUstream a = make_stream(CU_STREAM_DEFAULT), b = make_stream(CU_STREAM_DEFAULT);
    CUdeviceptr first, second;
    CHECK(cuMemAllocAsync(&first, BYTES, CU_STREAM_LEGACY));
    CHECK(cuStreamSynchronize(CU_STREAM_LEGACY));
    for (int i = 0; i < 5; i++)
        CHECK(cuMemsetD8Async(first, 1, BYTES, a));
    CHECK(cuMemFreeAsync(first, CU_STREAM_LEGACY));
    CHECK(cuMemAllocAsync(&second, BYTES, CU_STREAM_LEGACY));
    CHECK(cuMemsetD8Async(second, 2, BYTES, b));
    CHECK(cuCtxSynchronize());
    expect(second, 2, b);
    CHECK(cuMemFreeAsync(second, CU_STREAM_LEGACY));
}

/* Sizes that do not fit what was freed just before. */
static size_t size_of(int i)
{
    return (size_t)(8 + i % 5 * 8) * MIB;
}

static void use_in(CUstream stream, int i)
{
    CUdeviceptr address;
    CHECK(cuMemAllocAsync(&address, size_of(i), stream));
    CHECK(cuMemsetD8Async(address, (unsigned char)i, SAMPLE, stream));
    expect(address, (unsigned char)i, stream);
    CHECK(cuMemFreeAsync(address, stream));
    CHECK(cuStreamSynchronize(stream));
}

static void *use_own(void *context)
{
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < 150; i++)
        use_in(CU_STREAM_PER_THREAD, i);
    return NULL;
}

static void beside_endless(const char *how)
{
    CUstream endless = make_stream(CU_STREAM_NON_BLOCKING);
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    CUcontext context;
    pthread_t thread;
    block(endless);
    for (int i = 0; i < 300; i++) {
        if (strcmp(how, "closing") == 0) {
            CHECK(cuStreamDestroy(stream));
            stream = make_stream(CU_STREAM_NON_BLOCKING);
        }
        if (strcmp(how, "plain") == 0) {
            CUdeviceptr address = take(MIB);
            CHECK(cuMemsetD8Async(address, 5, SAMPLE, stream));
            CHECK(cuMemFree(address));
        } else if (strcmp(how, "mixed") == 0) {
            CUdeviceptr address = take(MIB);
            CHECK(cuMemsetD8Async(address, 5, SAMPLE, stream));
            CHECK(cuMemFreeAsync(address, stream));
            CHECK(cuStreamSynchronize(stream));
        } else if (strcmp(how, "thread") != 0) {
            use_in(stream, i);
        }
    }
    if (strcmp(how, "thread") == 0) {
        CHECK(cuCtxGetCurrent(&context));
        require(pthread_create(&thread, NULL, use_own, context) == 0, "no thread");
        pthread_join(thread, NULL);
    }
    sem_post(&gate);
    CHECK(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    sem_init(&gate, 0, 0);
    program_start();
    if (strstr("work destroy capture context", how) != NULL)
        end_of_one(how);
    else if (strstr("export flag token library hidden", how) != NULL)
        outside(how, argc > 2 ? argv[2] : "");
    else if (strcmp(how, "harmless") == 0)
        harmless(argc > 2 ? argv[2] : "");
    else if (strcmp(how, "legacy") == 0)
        legacy();
    else
        beside_endless(how);
    puts("done");
    return EXIT_SUCCESS;
}
