/* The driver's own need of device memory. Launches, copies, streams, events, modules, graphs and
 * contexts take device memory inside the driver; where it finds none because the cache has it, the
 * cache gives it back and the call is made again. One rule for every entry point of api.def;
 * once.def has the exceptions.
 *
 * A wrapper makes the program's call with GC_CALL_RELIEVED or GC_FORWARD. GC_CALL is for the
 * library's own calls: core reclaims for those itself. */
#ifndef GC_RELIEVE_H
#define GC_RELIEVE_H

#include "shim/real/resolve.h"
#include "shim/shim.h"

/* After CUDA_ERROR_OUT_OF_MEMORY of a program's call: releases idle memory of `device` (NULL: of
 * the current context's). `bytes` of it, 0 if the need is unknown, at the first `attempt`, 0; all
 * of it later, after a wait for pending memory if nothing else is left: up to 30 s for a request
 * for memory, 0.25 s for any other call. True: call again. */
bool gc_relieve(struct gc_device *device, enum gc_api api, uint64_t bytes, unsigned attempt);
/* The same for a thread that may be inside another wrapper, for which it does nothing. */
bool gc_relieve_outside(enum gc_api api, unsigned attempt);

/* The program's driver call in a wrapper that was entered; the arguments are evaluated for each
 * attempt. `bytes`: the device memory that it takes, 0: unknown. */
#define GC_CALL_RELIEVED_FOR(bytes, device, symbol, ...)                                           \
    ({                                                                                             \
        struct gc_device *full_ = (device);                                                        \
        CUresult relieved_ = GC_CALL(full_, symbol, ##__VA_ARGS__);                                \
        for (unsigned attempt_ = 0; __builtin_expect(relieved_ == CUDA_ERROR_OUT_OF_MEMORY, 0) &&  \
                                    gc_relieve(full_, GC_API_##symbol, (bytes), attempt_);         \
             attempt_++)                                                                           \
            relieved_ = GC_CALL(full_, symbol, ##__VA_ARGS__);                                     \
        relieved_;                                                                                 \
    })
#define GC_CALL_RELIEVED(device, symbol, ...) GC_CALL_RELIEVED_FOR(0, device, symbol, ##__VA_ARGS__)

/* The same for a request of direct memory (struct gc_direct_request *). */
#define GC_DIRECT_CALL(request, bytes, symbol, ...)                                                \
    GC_CALL_RELIEVED_FOR((bytes), (request)->device, symbol, ##__VA_ARGS__)

/* A call that the library leaves to the driver: the driver's result, counted for no device. */
#define GC_FORWARD(symbol, ...)                                                                    \
    ({                                                                                             \
        CUresult forwarded_ = GC_CALL(NULL, symbol, ##__VA_ARGS__);                                \
        for (unsigned attempt_ = 0; __builtin_expect(forwarded_ == CUDA_ERROR_OUT_OF_MEMORY, 0) && \
                                    gc_relieve_outside(GC_API_##symbol, attempt_);                 \
             attempt_++)                                                                           \
            forwarded_ = GC_CALL(NULL, symbol, ##__VA_ARGS__);                                     \
        forwarded_;                                                                                \
    })

#endif
