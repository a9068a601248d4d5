/* A runtime API program: kernels, loops of allocations, copies of every shape, streams, events,
 * managed and host memory, pools, arrays, a captured graph. Its output does not depend on kernels
 * having run, so that a GPU and the simulated device give the same. */
#include <cuda_runtime.h>

#include "tests/clients/client.h"

#define CALL(name, ...) client_call(#name, (int)name(__VA_ARGS__), __LINE__)

#define BYTES (256 * 1024)
#define WIDTH 300
#define HEIGHT 70
#define DEPTH 5

static __device__ unsigned char device_table[1024];
static __constant__ float scale = 2.0f;
static unsigned char from[BYTES], to[BYTES];

static __global__ void touch(float *values, int count)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    if (i < count)
        values[i] *= scale;
}

static void clear_and_fill(unsigned seed)
{
    client_fill(from, BYTES, seed);
    memset(to, 0, BYTES);
}

static void vectors(void)
{
    void *blocks[24];
    float *values;

    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 24; i++)
            CALL(cudaMalloc, &blocks[i], (size_t)(i + 1) * 3000);
        for (int i = 0; i < 24; i++)
            CALL(cudaFree, blocks[(i * 5) % 24]);
    }
    clear_and_fill(1);
    CALL(cudaMalloc, (void **)&values, BYTES);
    touch<<<BYTES / 1024, 256>>>(values, BYTES / 4);
    CALL(cudaGetLastError);
    CALL(cudaDeviceSynchronize);
    CALL(cudaMemcpy, values, from, BYTES, cudaMemcpyHostToDevice);
    CALL(cudaMemset, (char *)values + 100, 7, 1000);
    CALL(cudaMemcpy, to, values, BYTES, cudaMemcpyDeviceToHost);
    client_result("vectors", to, BYTES);
    CALL(cudaFree, values);
    CALL(cudaMalloc, &blocks[0], 0);
    REQUIRE(blocks[0] == NULL);
    CALL(cudaFree, NULL);
}

static void symbols(void)
{
    unsigned char back[1024];
    void *address;
    size_t bytes;

    clear_and_fill(2);
    CALL(cudaGetSymbolSize, &bytes, device_table);
    REQUIRE(bytes == sizeof(back));
    CALL(cudaGetSymbolAddress, &address, device_table);
    CALL(cudaMemcpyToSymbol, device_table, from, sizeof(back) - 24, 24, cudaMemcpyHostToDevice);
    CALL(cudaMemcpy, back, address, sizeof(back), cudaMemcpyDeviceToHost);
    client_result("symbols", back + 24, sizeof(back) - 24);
    CALL(cudaMemcpyFromSymbol, to, device_table, 500, 24, cudaMemcpyDeviceToHost);
    client_result("from symbol", to, 500);
}

static void shapes(void)
{
    struct cudaExtent extent = make_cudaExtent(WIDTH, HEIGHT, DEPTH);
    struct cudaPitchedPtr box;
    struct cudaMemcpy3DParms copy;
    void *plane;
    size_t pitch;

    clear_and_fill(3);
    CALL(cudaMallocPitch, &plane, &pitch, WIDTH, HEIGHT);
    REQUIRE(pitch >= WIDTH);
    CALL(cudaMemset2D, plane, pitch, 9, WIDTH, HEIGHT);
    CALL(cudaMemcpy2D, plane, pitch, from, WIDTH, WIDTH, HEIGHT - 1, cudaMemcpyHostToDevice);
    CALL(cudaMemcpy2D, to, WIDTH, plane, pitch, WIDTH, HEIGHT, cudaMemcpyDeviceToHost);
    client_result("plane", to, WIDTH * HEIGHT);
    CALL(cudaFree, plane);

    CALL(cudaMalloc3D, &box, extent);
    CALL(cudaMemset3D, box, 5, extent);
    memset(&copy, 0, sizeof(copy));
    copy.srcPtr = make_cudaPitchedPtr(from, WIDTH, WIDTH, HEIGHT);
    copy.dstPtr = box;
    copy.dstPos = make_cudaPos(8, 3, 1);
    copy.extent = make_cudaExtent(WIDTH - 8, HEIGHT - 3, DEPTH - 1);
    copy.kind = cudaMemcpyHostToDevice;
    CALL(cudaMemcpy3D, &copy);
    memset(&copy, 0, sizeof(copy));
    copy.srcPtr = box;
    copy.dstPtr = make_cudaPitchedPtr(to, WIDTH, WIDTH, HEIGHT);
    copy.extent = extent;
    copy.kind = cudaMemcpyDeviceToHost;
    CALL(cudaMemcpy3D, &copy);
    client_result("box", to, WIDTH * HEIGHT * DEPTH);
    CALL(cudaFree, box.ptr);
}

static void arrays(void)
{
    struct cudaChannelFormatDesc channel = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindFloat);
    struct cudaMemcpy3DParms copy;
    cudaArray_t flat, solid;

    clear_and_fill(4);
    CALL(cudaMallocArray, &flat, &channel, 64, 32, cudaArrayDefault);
    CALL(cudaMemcpy2DToArray, flat, 0, 0, from, 256, 256, 32, cudaMemcpyHostToDevice);
    CALL(cudaMemcpy2DFromArray, to, 256, flat, 0, 0, 256, 32, cudaMemcpyDeviceToHost);
    client_result("array", to, 256 * 32);
    CALL(cudaFreeArray, flat);

    CALL(cudaMalloc3DArray, &solid, &channel, make_cudaExtent(16, 8, 4), cudaArrayDefault);
    memset(&copy, 0, sizeof(copy));
    copy.srcPtr = make_cudaPitchedPtr(from, 64, 16, 8);
    copy.dstArray = solid;
    copy.extent = make_cudaExtent(16, 8, 4);
    copy.kind = cudaMemcpyHostToDevice;
    CALL(cudaMemcpy3D, &copy);
    memset(&copy, 0, sizeof(copy));
    copy.srcArray = solid;
    copy.dstPtr = make_cudaPitchedPtr(to, 64, 16, 8);
    copy.extent = make_cudaExtent(16, 8, 4);
    copy.kind = cudaMemcpyDeviceToHost;
    CALL(cudaMemcpy3D, &copy);
    client_result("solid array", to, 64 * 8 * 4);
    CALL(cudaFreeArray, solid);
}

static void CUDART_CB add_one(void *argument)
{
    ++*(int *)argument;
}

static void streams(void)
{
    cudaStream_t first, second;
    cudaEvent_t begin, end;
    unsigned char *pinned, *device;
    float ms = -1;
    int calls = 0;

    clear_and_fill(5);
    CALL(cudaStreamCreate, &first);
    CALL(cudaStreamCreateWithFlags, &second, cudaStreamNonBlocking);
    CALL(cudaEventCreate, &begin);
    CALL(cudaEventCreate, &end);
    CALL(cudaMallocHost, (void **)&pinned, BYTES);
    CALL(cudaMalloc, (void **)&device, BYTES);
    memcpy(pinned, from, BYTES);
    CALL(cudaEventRecord, begin, first);
    for (int i = 0; i < 8; i++)
        CALL(cudaMemcpyAsync, device + i * (BYTES / 8), pinned + i * (BYTES / 8), BYTES / 8, cudaMemcpyHostToDevice,
             first);
    touch<<<1, 32, 0, first>>>((float *)device, 0);
    CALL(cudaGetLastError);
    CALL(cudaLaunchHostFunc, first, add_one, &calls);
    CALL(cudaEventRecord, end, first);
    CALL(cudaStreamWaitEvent, second, end, 0);
    CALL(cudaMemsetAsync, device, 3, 64, second);
    CALL(cudaMemcpyAsync, pinned, device, BYTES, cudaMemcpyDeviceToHost, second);
    CALL(cudaStreamSynchronize, second);
    CALL(cudaEventSynchronize, end);
    CALL(cudaEventElapsedTime, &ms, begin, end);
    REQUIRE(ms >= 0 && calls == 1);
    client_result("streams", pinned, BYTES);
    CALL(cudaEventDestroy, begin);
    CALL(cudaEventDestroy, end);
    CALL(cudaStreamDestroy, first);
    CALL(cudaStreamDestroy, second);
    CALL(cudaFreeHost, pinned);
    CALL(cudaFree, device);
}

static void managed(void)
{
    struct cudaPointerAttributes attributes;
    unsigned char *shared;

    clear_and_fill(6);
    CALL(cudaMallocManaged, (void **)&shared, BYTES, cudaMemAttachGlobal);
    memcpy(shared, from, BYTES);
    CALL(cudaMemset, shared, 1, 128);
    CALL(cudaDeviceSynchronize);
    client_result("managed", shared, BYTES);
    CALL(cudaPointerGetAttributes, &attributes, shared);
    REQUIRE(attributes.type == cudaMemoryTypeManaged);
    CALL(cudaFree, shared);
}

static void stream_ordered(void)
{
    cudaStream_t stream;
    unsigned char *device;

    clear_and_fill(7);
    CALL(cudaStreamCreate, &stream);
    for (int i = 0; i < 30; i++) {
        CALL(cudaMallocAsync, (void **)&device, BYTES, stream);
        CALL(cudaMemcpyAsync, device, from, BYTES, cudaMemcpyHostToDevice, stream);
        CALL(cudaMemcpyAsync, to, device, BYTES, cudaMemcpyDeviceToHost, stream);
        CALL(cudaFreeAsync, device, stream);
    }
    CALL(cudaStreamSynchronize, stream);
    client_result("stream ordered", to, BYTES);
    CALL(cudaStreamDestroy, stream);
}

static void graphs(void)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned char *device;
    size_t nodes = 0;

    clear_and_fill(8);
    CALL(cudaMalloc, (void **)&device, BYTES);
    CALL(cudaStreamCreateWithFlags, &stream, cudaStreamNonBlocking);
    CALL(cudaStreamBeginCapture, stream, cudaStreamCaptureModeThreadLocal);
    CALL(cudaMemcpyAsync, device, from, BYTES, cudaMemcpyHostToDevice, stream);
    CALL(cudaMemsetAsync, device + 512, 4, 512, stream);
    CALL(cudaMemcpyAsync, to, device, BYTES, cudaMemcpyDeviceToHost, stream);
    CALL(cudaStreamEndCapture, stream, &graph);
    CALL(cudaGraphGetNodes, graph, NULL, &nodes);
    REQUIRE(nodes == 3);
    REQUIRE(to[0] == 0 && to[BYTES - 1] == 0);
    CALL(cudaGraphInstantiate, &exec, graph, 0);
    for (int i = 0; i < 3; i++)
        CALL(cudaGraphLaunch, exec, stream);
    CALL(cudaStreamSynchronize, stream);
    client_result("graph", to, BYTES);
    CALL(cudaGraphExecDestroy, exec);
    CALL(cudaGraphDestroy, graph);
    CALL(cudaStreamDestroy, stream);
    CALL(cudaFree, device);
}

int main(void)
{
    int devices = 0;
    size_t free_bytes, total_bytes;

    CALL(cudaGetDeviceCount, &devices);
    REQUIRE(devices >= 1);
    CALL(cudaSetDevice, 0);
    CALL(cudaMemGetInfo, &free_bytes, &total_bytes);
    REQUIRE(free_bytes <= total_bytes);
    vectors();
    symbols();
    shapes();
    arrays();
    streams();
    managed();
    stream_ordered();
    graphs();
    CALL(cudaDeviceSynchronize);
    return client_finish();
}
