/* cuDNN without arithmetic (touch.h): convolutions forward and backward, and recurrent networks
 * forward, by the interface of version 7 (TORCH_CUDNN_V8_API_DISABLED=1). The signatures are those
 * of NVIDIA's cuDNN manual. One kind of descriptor serves all: it knows its extent in bytes. */
#include "touch.h"

#include <stdlib.h>

#define ALLOC_FAILED 4
#define WORKSPACE ((size_t)1 << 20)
#define DIMENSIONS 8

struct handle {
    void *stream;
};

struct descriptor {
    size_t bytes;
    int type;
    int count;
    int dimensions[DIMENSIONS];
    int strides[DIMENSIONS];
};
typedef struct descriptor *descriptor_t;

struct performance {
    int algorithm;
    int status;
    float time;
    size_t memory;
    int determinism;
    int math;
    int reserved[3];
};

size_t cudnnGetVersion(void);
size_t cudnnGetCudartVersion(void);
const char *cudnnGetErrorString(int status);
int cudnnCreate(struct handle **handle);
int cudnnSetStream(struct handle *handle, void *stream);
int cudnnGetStream(struct handle *handle, void **stream);

size_t cudnnGetVersion(void)
{
    return 91900;
}

size_t cudnnGetCudartVersion(void)
{
    return 13000;
}

const char *cudnnGetErrorString(int status)
{
    return status ? "an error of the stand-in's" : "CUDNN_STATUS_SUCCESS";
}

int cudnnCreate(struct handle **handle)
{
    *handle = calloc(1, sizeof(**handle));
    return *handle ? 0 : ALLOC_FAILED;
}

int cudnnSetStream(struct handle *handle, void *stream)
{
    handle->stream = stream;
    return 0;
}

int cudnnGetStream(struct handle *handle, void **stream)
{
    *stream = handle->stream;
    return 0;
}

#define DESCRIPTOR(kind)                                                                           \
    int cudnnCreate##kind(descriptor_t *descriptor);                                               \
    int cudnnDestroy##kind(descriptor_t descriptor);                                               \
    int cudnnCreate##kind(descriptor_t *descriptor)                                                \
    {                                                                                              \
        *descriptor = calloc(1, sizeof(**descriptor));                                             \
        return *descriptor ? 0 : ALLOC_FAILED;                                                     \
    }                                                                                              \
    int cudnnDestroy##kind(descriptor_t descriptor)                                                \
    {                                                                                              \
        free(descriptor);                                                                          \
        return 0;                                                                                  \
    }
DESCRIPTOR(TensorDescriptor)
DESCRIPTOR(FilterDescriptor)
DESCRIPTOR(ConvolutionDescriptor)
DESCRIPTOR(ActivationDescriptor)
DESCRIPTOR(DropoutDescriptor)
DESCRIPTOR(RNNDescriptor)
DESCRIPTOR(RNNDataDescriptor)

/* A cudnnDataType_t's bytes. */
static size_t element(int type)
{
    switch (type) {
    case 0: /* float */
        return 4;
    case 1: /* double */
        return 8;
    case 2: /* half */
    case 9: /* bfloat16 */
        return 2;
    default:
        return 1;
    }
}

int cudnnSetTensorNdDescriptor(descriptor_t descriptor, int type, int count, const int *dimensions,
                               const int *strides);
int cudnnSetTensorNdDescriptor(descriptor_t descriptor, int type, int count, const int *dimensions,
                               const int *strides)
{
    size_t last = 0;

    for (int i = 0; i < count; i++)
        last += (size_t)(dimensions[i] - 1) * (size_t)strides[i];
    descriptor->type = type;
    descriptor->bytes = (last + 1) * element(type);
    return 0;
}

int cudnnSetFilterNdDescriptor(descriptor_t descriptor, int type, int format, int count,
                               const int *dimensions);
int cudnnSetFilterNdDescriptor(descriptor_t descriptor, int type, int format, int count,
                               const int *dimensions)
{
    size_t elements = 1;

    (void)format;
    for (int i = 0; i < count; i++)
        elements *= (size_t)dimensions[i];
    descriptor->type = type;
    descriptor->bytes = elements * element(type);
    return 0;
}

/* ---- convolutions: an algorithm that wants a workspace, and the work ---- */

static int one(int room, int *count, struct performance *results)
{
    *count = room > 0;
    if (room > 0)
        *results = (struct performance){.memory = WORKSPACE, .determinism = 1};
    return 0;
}

#define CONVOLUTION(direction)                                                                     \
    int cudnnGetConvolution##direction##Algorithm_v7(                                              \
        struct handle *handle, descriptor_t a, descriptor_t b, descriptor_t convolution,           \
        descriptor_t to, int room, int *count, struct performance *results);                       \
    int cudnnGetConvolution##direction##WorkspaceSize(                                             \
        struct handle *handle, descriptor_t a, descriptor_t b, descriptor_t convolution,           \
        descriptor_t to, int algorithm, size_t *bytes);                                            \
    int cudnnConvolution##direction(struct handle *handle, const void *alpha, descriptor_t a,      \
                                    const void *a_data, descriptor_t b, const void *b_data,        \
                                    descriptor_t convolution, int algorithm, void *workspace,      \
                                    size_t bytes, const void *beta, descriptor_t to, void *data);  \
    int cudnnGetConvolution##direction##Algorithm_v7(                                              \
        struct handle *handle, descriptor_t a, descriptor_t b, descriptor_t convolution,           \
        descriptor_t to, int room, int *count, struct performance *results)                        \
    {                                                                                              \
        (void)handle, (void)a, (void)b, (void)convolution, (void)to;                               \
        return one(room, count, results);                                                          \
    }                                                                                              \
    int cudnnGetConvolution##direction##WorkspaceSize(                                             \
        struct handle *handle, descriptor_t a, descriptor_t b, descriptor_t convolution,           \
        descriptor_t to, int algorithm, size_t *bytes)                                             \
    {                                                                                              \
        (void)handle, (void)a, (void)b, (void)convolution, (void)to, (void)algorithm;              \
        *bytes = WORKSPACE;                                                                        \
        return 0;                                                                                  \
    }                                                                                              \
    int cudnnConvolution##direction(struct handle *handle, const void *alpha, descriptor_t a,      \
                                    const void *a_data, descriptor_t b, const void *b_data,        \
                                    descriptor_t convolution, int algorithm, void *workspace,      \
                                    size_t bytes, const void *beta, descriptor_t to, void *data)   \
    {                                                                                              \
        int error = cudaMemsetAsync(workspace, FILL, bytes, handle->stream);                       \
                                                                                                   \
        (void)alpha, (void)convolution, (void)algorithm, (void)beta;                               \
        if (error)                                                                                 \
            return error;                                                                          \
        return touch(data, to->bytes, a_data, a->bytes, b_data, b->bytes, handle->stream);         \
    }
CONVOLUTION(Forward)
CONVOLUTION(BackwardData)
CONVOLUTION(BackwardFilter)
