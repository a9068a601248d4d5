/* The ways in which libtenant.c takes device memory: WAY(name, take, give). */
#ifndef TENANT_WAYS_H
#define TENANT_WAYS_H

#define TENANT_WAYS(WAY)                                                                           \
    WAY(plain, take_plain, give_plain)                                                             \
    WAY(dlsym, take_dlsym, give_plain)                                                             \
    WAY(proc, take_proc, give_plain)                                                               \
    WAY(pitch, take_pitch, give_plain)                                                             \
    WAY(async, take_async, give_async)                                                             \
    WAY(array, take_array, give_array)                                                             \
    WAY(handle, take_handle, give_handle)                                                          \
    WAY(runtime, take_runtime, give_runtime)                                                       \
    WAY(runtime_pitch, take_runtime_pitch, give_runtime)                                           \
    WAY(runtime_async, take_runtime_async, give_runtime)                                           \
    WAY(runtime_array, take_runtime_array, give_runtime_array)                                     \
    WAY(own, take_own, give_own)                                                                   \
    WAY(torch, take_torch, give_own)                                                               \
    WAY(cupy, take_cupy, give_own)                                                                 \
    WAY(rmm, take_rmm, give_own)                                                                   \
    WAY(elastic, take_elastic, give_elastic)

#endif
