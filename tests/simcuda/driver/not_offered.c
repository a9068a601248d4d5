/* Entry points that programs look up when they start, all or none, but that this device does not
 * offer: graphics, EGL, textures, external memory, linking of images. Each answers
 * CUDA_ERROR_NOT_SUPPORTED once the driver is initialised. Graphics and EGL are declared here:
 * their headers want those of OpenGL and EGL. */
#include "tests/simcuda/sim.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT CUresult cuGLGetDevices_v2(unsigned *count, CUdevice *devices, unsigned room, int list);
EXPORT CUresult cuGraphicsGLRegisterImage(CUgraphicsResource *resource, unsigned image,
                                          unsigned target, unsigned flags);
EXPORT CUresult cuEGLStreamConsumerDisconnect(void **connection);
EXPORT CUresult cuEGLStreamProducerConnect(void **connection, void *stream, int width, int height);
EXPORT CUresult cuEGLStreamProducerDisconnect(void **connection);
EXPORT CUresult cuEGLStreamProducerPresentFrame(void **connection, const void *frame,
                                                CUstream *stream);
EXPORT CUresult cuEGLStreamProducerReturnFrame(void **connection, void *frame, CUstream *stream);
EXPORT CUresult cuProfilerInitialize(const char *configuration, const char *output, int mode);

static CUresult refuse(void)
{
    CUresult result = sim_check_init();
    return result ? result : CUDA_ERROR_NOT_SUPPORTED;
}

/* NOT_OFFERED(name, (parameters), (arguments)): arguments are only named, so that none is unused.
 */
#define TOUCH_1(a) (void)(a)
#define TOUCH_2(a, b) TOUCH_1(a), (void)(b)
#define TOUCH_3(a, b, c) TOUCH_2(a, b), (void)(c)
#define TOUCH_4(a, b, c, d) TOUCH_3(a, b, c), (void)(d)
#define TOUCH_6(a, b, c, d, e, f) TOUCH_4(a, b, c, d), TOUCH_2(e, f)
#define TOUCH_8(a, b, c, d, e, f, g, h) TOUCH_4(a, b, c, d), TOUCH_4(e, f, g, h)
#define NOT_OFFERED(name, count, parameters, arguments)                                            \
    SIM_API(name, parameters, arguments, "%s", "")                                                 \
    {                                                                                              \
        TOUCH_##count arguments;                                                                   \
        return refuse();                                                                           \
    }

#define NOT_OFFERED_THREAD(name, count, parameters, arguments)                                     \
    SIM_API_THREAD(name, _ptsz, parameters, arguments, "%s", "")                                   \
    {                                                                                              \
        (void)per_thread;                                                                          \
        TOUCH_##count arguments;                                                                   \
        return refuse();                                                                           \
    }

/* ---- graphics and EGL ---- */

NOT_OFFERED(cuGLGetDevices_v2, 4, (unsigned *count, CUdevice *devices, unsigned room, int list),
            (count, devices, room, list))
NOT_OFFERED(cuGraphicsGLRegisterImage, 4,
            (CUgraphicsResource * resource, unsigned image, unsigned target, unsigned flags),
            (resource, image, target, flags))
NOT_OFFERED_THREAD(cuGraphicsMapResources, 3,
                   (unsigned count, CUgraphicsResource *resources, CUstream stream),
                   (count, resources, stream))
NOT_OFFERED_THREAD(cuGraphicsUnmapResources, 3,
                   (unsigned count, CUgraphicsResource *resources, CUstream stream),
                   (count, resources, stream))
NOT_OFFERED(cuGraphicsResourceGetMappedPointer_v2, 3,
            (CUdeviceptr * address, size_t *bytes, CUgraphicsResource resource),
            (address, bytes, resource))
NOT_OFFERED(cuGraphicsSubResourceGetMappedArray, 4,
            (CUarray * array, CUgraphicsResource resource, unsigned index, unsigned level),
            (array, resource, index, level))
NOT_OFFERED(cuGraphicsUnregisterResource, 1, (CUgraphicsResource resource), (resource))
NOT_OFFERED(cuEGLStreamConsumerDisconnect, 1, (void **connection), (connection))
NOT_OFFERED(cuEGLStreamProducerConnect, 4, (void **connection, void *stream, int width, int height),
            (connection, stream, width, height))
NOT_OFFERED(cuEGLStreamProducerDisconnect, 1, (void **connection), (connection))
NOT_OFFERED(cuEGLStreamProducerPresentFrame, 3,
            (void **connection, const void *frame, CUstream *stream), (connection, frame, stream))
NOT_OFFERED(cuEGLStreamProducerReturnFrame, 3, (void **connection, void *frame, CUstream *stream),
            (connection, frame, stream))

/* ---- textures ---- */

NOT_OFFERED(cuTexObjectCreate, 4,
            (CUtexObject * object, const CUDA_RESOURCE_DESC *resource,
             const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view),
            (object, resource, texture, view))
NOT_OFFERED(cuTexObjectDestroy, 1, (CUtexObject object), (object))

/* References, which PyCUDA links against; cuGetProcAddress has none of them. */

NOT_OFFERED(cuModuleGetTexRef, 3, (CUtexref * texture, CUmodule module, const char *name),
            (texture, module, name))
NOT_OFFERED(cuModuleGetSurfRef, 3, (CUsurfref * surface, CUmodule module, const char *name),
            (surface, module, name))
NOT_OFFERED(cuSurfRefGetArray, 2, (CUarray * array, CUsurfref surface), (array, surface))
NOT_OFFERED(cuSurfRefSetArray, 3, (CUsurfref surface, CUarray array, unsigned flags),
            (surface, array, flags))
NOT_OFFERED(cuTexRefCreate, 1, (CUtexref * texture), (texture))
NOT_OFFERED(cuTexRefDestroy, 1, (CUtexref texture), (texture))
NOT_OFFERED(cuTexRefGetAddress_v2, 2, (CUdeviceptr * address, CUtexref texture), (address, texture))
NOT_OFFERED(cuTexRefGetAddressMode, 3, (CUaddress_mode * mode, CUtexref texture, int dimension),
            (mode, texture, dimension))
NOT_OFFERED(cuTexRefGetArray, 2, (CUarray * array, CUtexref texture), (array, texture))
NOT_OFFERED(cuTexRefGetFilterMode, 2, (CUfilter_mode * mode, CUtexref texture), (mode, texture))
NOT_OFFERED(cuTexRefGetFlags, 2, (unsigned *flags, CUtexref texture), (flags, texture))
NOT_OFFERED(cuTexRefGetFormat, 3, (CUarray_format * format, int *channels, CUtexref texture),
            (format, channels, texture))
NOT_OFFERED(cuTexRefSetAddress_v2, 4,
            (size_t * offset, CUtexref texture, CUdeviceptr address, size_t bytes),
            (offset, texture, address, bytes))
NOT_OFFERED(cuTexRefSetAddress2D_v3, 4,
            (CUtexref texture, const CUDA_ARRAY_DESCRIPTOR *shape, CUdeviceptr address,
             size_t pitch),
            (texture, shape, address, pitch))
NOT_OFFERED(cuTexRefSetAddressMode, 3, (CUtexref texture, int dimension, CUaddress_mode mode),
            (texture, dimension, mode))
NOT_OFFERED(cuTexRefSetArray, 3, (CUtexref texture, CUarray array, unsigned flags),
            (texture, array, flags))
NOT_OFFERED(cuTexRefSetFilterMode, 2, (CUtexref texture, CUfilter_mode mode), (texture, mode))
NOT_OFFERED(cuTexRefSetFlags, 2, (CUtexref texture, unsigned flags), (texture, flags))
NOT_OFFERED(cuTexRefSetFormat, 3, (CUtexref texture, CUarray_format format, int channels),
            (texture, format, channels))

/* "Starting with CUDA 12.0, it always returns error code CUDA_ERROR_NOT_SUPPORTED." */
NOT_OFFERED(cuProfilerInitialize, 3, (const char *configuration, const char *output, int mode),
            (configuration, output, mode))

/* ---- memory and semaphores of other interfaces ---- */

NOT_OFFERED(cuImportExternalMemory, 2,
            (CUexternalMemory * memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *handle),
            (memory, handle))
NOT_OFFERED(cuDestroyExternalMemory, 1, (CUexternalMemory memory), (memory))
NOT_OFFERED(cuExternalMemoryGetMappedBuffer, 3,
            (CUdeviceptr * address, CUexternalMemory memory,
             const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *buffer),
            (address, memory, buffer))
NOT_OFFERED(cuExternalMemoryGetMappedMipmappedArray, 3,
            (CUmipmappedArray * array, CUexternalMemory memory,
             const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *shape),
            (array, memory, shape))
NOT_OFFERED(cuImportExternalSemaphore, 2,
            (CUexternalSemaphore * semaphore, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *handle),
            (semaphore, handle))
NOT_OFFERED(cuDestroyExternalSemaphore, 1, (CUexternalSemaphore semaphore), (semaphore))
NOT_OFFERED_THREAD(cuSignalExternalSemaphoresAsync, 4,
                   (const CUexternalSemaphore *semaphores,
                    const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *parameters, unsigned count,
                    CUstream stream),
                   (semaphores, parameters, count, stream))
NOT_OFFERED_THREAD(cuWaitExternalSemaphoresAsync, 4,
                   (const CUexternalSemaphore *semaphores,
                    const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *parameters, unsigned count,
                    CUstream stream),
                   (semaphores, parameters, count, stream))

/* ---- linking ---- */

NOT_OFFERED(cuLinkCreate_v2, 4,
            (unsigned count, CUjit_option *options, void **values, CUlinkState *state),
            (count, options, values, state))
NOT_OFFERED(cuLinkCreate, 4,
            (unsigned count, CUjit_option *options, void **values, CUlinkState *state),
            (count, options, values, state))
NOT_OFFERED(cuLinkAddData_v2, 8,
            (CUlinkState state, CUjitInputType type, void *data, size_t bytes, const char *name,
             unsigned count, CUjit_option *options, void **values),
            (state, type, data, bytes, name, count, options, values))
NOT_OFFERED(cuLinkAddData, 8,
            (CUlinkState state, CUjitInputType type, void *data, size_t bytes, const char *name,
             unsigned count, CUjit_option *options, void **values),
            (state, type, data, bytes, name, count, options, values))
NOT_OFFERED(cuLinkAddFile_v2, 6,
            (CUlinkState state, CUjitInputType type, const char *path, unsigned count,
             CUjit_option *options, void **values),
            (state, type, path, count, options, values))
NOT_OFFERED(cuLinkComplete, 3, (CUlinkState state, void **image, size_t *bytes),
            (state, image, bytes))
NOT_OFFERED(cuLinkDestroy, 1, (CUlinkState state), (state))
