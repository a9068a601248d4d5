/* The process' side of the driver: start, fork, exit, the devices.
 *
 * After fork the child's calls return CUDA_ERROR_NOT_INITIALIZED without taking a lock, as the
 * parent's state is of no use there. At exit a destructor turns every later call into
 * CUDA_ERROR_DEINITIALIZED; workers stop between two operations, and nothing is torn down under
 * them. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/early.h"
#include "tests/simcuda/driver/engine.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum state { STATE_NEW, STATE_TRIED, STATE_READY, STATE_FORKED, STATE_DOWN };

static atomic_int state;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t devices_once = PTHREAD_ONCE_INIT;
static struct sim_device devices[SIM_MAX_DEVICES];

void engine_lock(void)
{
    pthread_mutex_lock(&lock);
}

void engine_unlock(void)
{
    struct sim_graph_node *dead = graph_take_dead_locked();
    pthread_mutex_unlock(&lock);
    if (dead)
        graph_free_nodes(dead);
}

pthread_mutex_t *engine_mutex(void)
{
    return &lock;
}

bool engine_is_down(void)
{
    return atomic_load_explicit(&state, memory_order_acquire) >= STATE_FORKED;
}

int engine_device_count(void)
{
    return sim_settings()->device_count;
}

uint64_t engine_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void on_fork_in_child(void)
{
    atomic_store_explicit(&state, STATE_FORKED, memory_order_release);
}

__attribute__((destructor)) static void on_exit_of_process(void)
{
    int ready = STATE_READY;
    atomic_compare_exchange_strong(&state, &ready, STATE_DOWN);
}

/* A UUID that two processes with the same devices agree on. */
static void fill_device(struct sim_device *device, int ordinal)
{
    static const unsigned char stem[12] = {0x51, 0x3c, 0x0d, 0xa0, 0x7e, 0x57,
                                           0x4d, 0xe1, 0x9c, 0x0a, 0,    0};

    device->ordinal = ordinal;
    memcpy(device->uuid.bytes, stem, sizeof stem);
    device->uuid.bytes[14] = (char)(ordinal >> 8);
    device->uuid.bytes[15] = (char)ordinal;
    snprintf(device->name, sizeof device->name, "Simulated H200");
}

static void fill_devices(void)
{
    for (int i = 0; i < engine_device_count(); i++)
        fill_device(&devices[i], i);
}

enum sim_start sim_start(void)
{
    int now = atomic_load_explicit(&state, memory_order_acquire);

    return now == STATE_NEW ? SIM_START_NEW : now == STATE_TRIED ? SIM_START_TRIED : SIM_START_DONE;
}

CUresult sim_check_init(void)
{
    if (engine_in_callback())
        return CUDA_ERROR_NOT_PERMITTED;
    switch (atomic_load_explicit(&state, memory_order_acquire)) {
    case STATE_READY:
        return CUDA_SUCCESS;
    case STATE_DOWN:
        return CUDA_ERROR_DEINITIALIZED;
    default:
        return CUDA_ERROR_NOT_INITIALIZED;
    }
}

struct sim_device *sim_device(CUdevice ordinal)
{
    pthread_once(&devices_once, fill_devices);
    return ordinal >= 0 && ordinal < engine_device_count() ? &devices[ordinal] : NULL;
}

SIM_API(cuInit, (unsigned int flags), (flags), "%u", flags)
{
    int now = atomic_load_explicit(&state, memory_order_acquire);

    if (now == STATE_FORKED || now == STATE_DOWN)
        return now == STATE_FORKED ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_DEINITIALIZED;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (engine_device_count() == 0) {
        atomic_store_explicit(&state, STATE_TRIED, memory_order_release);
        return CUDA_ERROR_NO_DEVICE;
    }
    engine_lock();
    if (atomic_load_explicit(&state, memory_order_relaxed) == STATE_NEW) {
        pthread_atfork(NULL, NULL, on_fork_in_child);
        atomic_store_explicit(&state, STATE_READY, memory_order_release);
        atomic_fetch_and_explicit(&sim_calls_are_watched, ~SIM_WATCH_START, memory_order_relaxed);
    }
    engine_unlock();
    return CUDA_SUCCESS;
}

SIM_API(cuDriverGetVersion, (int *version), (version), "%p", (void *)version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = sim_settings()->driver_version;
    return CUDA_SUCCESS;
}
