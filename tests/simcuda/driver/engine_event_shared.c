/* Events between processes.
 *
 * An event made with CU_EVENT_INTERPROCESS has a place in a memory file of its process, and a
 * handle names both. The place has two counters: records begun, and the latest of them that has
 * completed. A process that waits looks at them again and again. A place that is given back keeps
 * its counters, so that a late completion of its former event completes nothing of the next one.
 *
 * A process maps another's file once and keeps it: work under way may still name a place there. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/engine_lazy.h"
#include "tests/simcuda/driver/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HANDLE_MAGIC UINT32_C(0x53494d45)
#define PLACES 65536u

struct event_place {
    atomic_uint_fast64_t begun, completed;
};

struct ipc_event {
    uint32_t magic;
    uint32_t pid;
    int32_t fd;
    uint32_t index;
};

_Static_assert(sizeof(struct ipc_event) <= CU_IPC_HANDLE_SIZE, "an IPC handle has 64 bytes");

/* ---- the places of this process; the engine's lock ---- */

static struct {
    struct event_place *places;
    int fd;
    uint32_t used_count; /* places that were ever in use */
    uint32_t free_count;
    uint32_t *free; /* those of them that are not */
} own;

static struct event_place *map_places(int fd)
{
    void *mapped = mmap(NULL, PLACES * sizeof(struct event_place), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_NORESERVE, fd, 0);

    return mapped == MAP_FAILED ? NULL : mapped;
}

static bool open_own_locked(void)
{
    if (own.places)
        return true;
    own.fd = sim_space_open_file("simcuda-events", PLACES * sizeof(struct event_place));
    if (own.fd < 0)
        return false;
    own.free = malloc(PLACES * sizeof *own.free);
    own.places = own.free ? map_places(own.fd) : NULL;
    if (own.places)
        return true;
    free(own.free);
    close(own.fd);
    return false;
}

struct event_place *event_place_take_locked(void)
{
    if (!open_own_locked() || (own.free_count == 0 && own.used_count == PLACES))
        return NULL;
    uint32_t index = own.free_count ? own.free[--own.free_count] : own.used_count++;
    event_place_complete(&own.places[index], event_place_begin(&own.places[index]));
    return &own.places[index];
}

static bool is_own(const struct event_place *place)
{
    return own.places && place >= own.places && place < own.places + PLACES;
}

void event_place_give_locked(struct event_place *place)
{
    if (is_own(place))
        own.free[own.free_count++] = (uint32_t)(place - own.places);
}

/* ---- records and waits ---- */

uint64_t event_place_begin(struct event_place *place)
{
    return atomic_fetch_add(&place->begun, 1) + 1;
}

void event_place_complete(struct event_place *place, uint64_t number)
{
    uint_fast64_t before = atomic_load(&place->completed);

    while (before < number && !atomic_compare_exchange_weak(&place->completed, &before, number)) {
    }
}

bool event_place_has_passed(const struct event_place *place, uint64_t number)
{
    return atomic_load(&place->completed) >= number;
}

uint64_t event_place_last(const struct event_place *place)
{
    return atomic_load(&place->begun);
}

void event_place_wait(const struct event_place *place, uint64_t number)
{
    const struct timespec pause = {0, 20000};

    while (!event_place_has_passed(place, number) && !engine_is_down())
        nanosleep(&pause, NULL);
}

struct wait {
    const struct event_place *place;
    uint64_t number;
};

static CUresult run_wait(struct sim_context *context, void *argument)
{
    const struct wait *wait = argument;

    (void)context;
    event_place_wait(wait->place, wait->number);
    return CUDA_SUCCESS;
}

CUresult event_place_wait_op(const struct event_place *place, struct sim_op *op)
{
    struct wait *wait = malloc(sizeof *wait);

    if (!wait)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *wait = (struct wait){place, event_place_last(place)};
    *op = (struct sim_op){.run = run_wait, .release = free, .argument = wait, .is_instant = true};
    return CUDA_SUCCESS;
}

/* ---- handles ---- */

/* "This event must have been created with the CU_EVENT_INTERPROCESS and CU_EVENT_DISABLE_TIMING
 * flags set": any other, and one that was opened itself, is INVALID_HANDLE here. */
SIM_API(cuIpcGetEventHandle, (CUipcEventHandle * pHandle, CUevent event), (pHandle, event), "%p",
        (void *)event)
{
    struct ipc_event handle = {.magic = HANDLE_MAGIC, .pid = (uint32_t)getpid()};
    struct sim_event *found;
    CUresult result = event_check(event, &found);

    if (result)
        return result;
    if (!pHandle)
        return CUDA_ERROR_INVALID_VALUE;
    engine_lock();
    if (found->place && is_own(found->place)) {
        handle.fd = own.fd;
        handle.index = (uint32_t)(found->place - own.places);
    } else {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    engine_unlock();
    if (result == CUDA_SUCCESS) {
        memset(pHandle, 0, sizeof *pHandle);
        memcpy(pHandle, &handle, sizeof handle);
    }
    return result;
}

/* Files of other processes, never unmapped. */
struct other {
    struct other *next;
    dev_t device;
    ino_t inode;
    struct event_place *places;
};
static struct other *others; /* the engine's lock */

static struct event_place *find_other_locked(int fd)
{
    struct stat status;
    struct other *other;

    if (fstat(fd, &status) != 0 || status.st_size < (off_t)(PLACES * sizeof(struct event_place)))
        return NULL;
    for (other = others; other; other = other->next)
        if (other->device == status.st_dev && other->inode == status.st_ino)
            return other->places;
    other = calloc(1, sizeof *other);
    if (!other)
        return NULL;
    *other = (struct other){others, status.st_dev, status.st_ino, map_places(fd)};
    if (!other->places) {
        free(other);
        return NULL;
    }
    others = other;
    return other->places;
}

static CUresult open_event(CUevent *out, const CUipcEventHandle *raw)
{
    struct sim_context *context;
    struct event_place *places;
    struct ipc_event handle;
    char path[64];
    CUresult result = sim_current(&context);

    if (result)
        return result;
    memcpy(&handle, raw, sizeof handle);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (handle.magic != HANDLE_MAGIC || handle.index >= PLACES)
        return CUDA_ERROR_INVALID_HANDLE;
    if (handle.pid == (uint32_t)getpid())
        return CUDA_ERROR_INVALID_CONTEXT; /* as for memory: a process cannot open its own */
    snprintf(path, sizeof path, "/proc/%u/fd/%d", handle.pid, handle.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_MAP_FAILED;
    engine_lock();
    places = find_other_locked(fd);
    engine_unlock();
    close(fd);
    return places ? event_create(context, CU_EVENT_DISABLE_TIMING, &places[handle.index], out)
                  : CUDA_ERROR_MAP_FAILED;
}

SIM_API(cuIpcOpenEventHandle, (CUevent * phEvent, CUipcEventHandle handle), (phEvent, handle), "%p",
        phEvent == NULL || sim_result != CUDA_SUCCESS ? NULL : (void *)*phEvent)
{
    return open_event(phEvent, &handle);
}
