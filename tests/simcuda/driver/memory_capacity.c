/* The devices' capacity: private to the process, or shared by all processes with the same
 * SIMCUDA_SHARED.
 *
 * Shared: a file in /dev/shm with one slot per process. A process holds its slot by a byte-range
 * lock of the file (an open-file-description lock, which the kernel drops with the process however
 * it ends), and only it changes its slot, except that whoever finds the lock of a used slot free
 * sweeps that slot. Taking holds the lock of byte 0, so that the sum and the addition are one step;
 * returning needs no lock. */
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOT_COUNT 256
#define MAX_DEVICES 64
#define FILE_MAGIC UINT32_C(0x53434d32)

struct slot {
    atomic_uint in_use;
    atomic_uint pid;
    atomic_uint_fast64_t used[MAX_DEVICES];
};

struct shared_file {
    atomic_uint magic;
    struct slot slots[SLOT_COUNT];
    atomic_uint_fast64_t link_busy_ns[MAX_DEVICES][SIM_DIRECTIONS];
};

static struct {
    pthread_mutex_t
        lock; /* opening; and the file lock of byte 0, which threads of a process share */
    struct shared_file *file;
    struct slot *slot;
    int fd;
    bool is_broken;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* Locks or unlocks a byte: byte 0 guards taking, byte 1 + i is slot i. */
static bool lock_byte(off_t byte, short type, bool wait)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int rc;

    do
        rc = fcntl(shared.fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
    while (rc != 0 && errno == EINTR);
    return rc == 0;
}

/* Clears the slots whose process is gone. Byte 0 held. */
static void sweep(void)
{
    for (int i = 0; i < SLOT_COUNT; i++) {
        struct slot *slot = &shared.file->slots[i];

        if (slot == shared.slot || atomic_load_explicit(&slot->in_use, memory_order_acquire) == 0 ||
            !lock_byte(1 + i, F_WRLCK, false))
            continue;
        for (int device = 0; device < MAX_DEVICES; device++)
            atomic_store_explicit(&slot->used[device], 0, memory_order_relaxed);
        atomic_store_explicit(&slot->in_use, 0, memory_order_release);
        lock_byte(1 + i, F_UNLCK, false);
    }
}

/* Claims a slot of the open file. Byte 0 held. */
static bool claim_slot(void)
{
    sweep();
    for (int i = 0; i < SLOT_COUNT; i++) {
        struct slot *slot = &shared.file->slots[i];

        if (atomic_load_explicit(&slot->in_use, memory_order_acquire) != 0 ||
            !lock_byte(1 + i, F_WRLCK, false))
            continue;
        atomic_store_explicit(&slot->pid, (unsigned)getpid(), memory_order_relaxed);
        atomic_store_explicit(&slot->in_use, 1, memory_order_release);
        shared.slot = slot;
        return true;
    }
    return false;
}

/* The child of a fork must not keep its parent's slot alive. */
static void close_in_child(void)
{
    if (shared.fd >= 0)
        close(shared.fd);
    shared.fd = -1;
    shared.is_broken = true;
    shared.slot = NULL;
}

static bool open_file(const char *name)
{
    char path[256];
    bool is_ready;

    if (snprintf(path, sizeof path, "/dev/shm/simcuda-%u-%s", (unsigned)getuid(), name) >=
            (int)sizeof path ||
        strchr(name, '/') != NULL)
        return false;
    shared.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (shared.fd < 0)
        return false;
    if (!lock_byte(0, F_WRLCK, true) || ftruncate(shared.fd, sizeof *shared.file) != 0)
        goto fail;
    shared.file = mmap(NULL, sizeof *shared.file, PROT_READ | PROT_WRITE, MAP_SHARED, shared.fd, 0);
    if (shared.file == MAP_FAILED)
        goto fail;
    if (shared.file->magic != FILE_MAGIC) {
        memset(shared.file->slots, 0, sizeof shared.file->slots);
        memset(shared.file->link_busy_ns, 0, sizeof shared.file->link_busy_ns);
        shared.file->magic = FILE_MAGIC;
    }
    is_ready = claim_slot();
    lock_byte(0, F_UNLCK, false);
    pthread_atfork(NULL, NULL, close_in_child);
    return is_ready;

fail:
    close(shared.fd);
    shared.fd = -1;
    return false;
}

/* True when this process takes part in a shared device. shared.lock held. */
static bool is_shared_locked(void)
{
    const char *name = sim_settings()->shared;

    if (name == NULL || *name == '\0')
        return false;
    if (shared.slot == NULL && !shared.is_broken && !open_file(name)) {
        shared.is_broken = true;
        fprintf(stderr, "simcuda: cannot share devices as \"%s\": %s\n", name, strerror(errno));
    }
    return shared.slot != NULL;
}

static uint64_t sum_slots(int ordinal)
{
    uint64_t sum = 0;

    for (int i = 0; i < SLOT_COUNT; i++)
        sum += atomic_load_explicit(&shared.file->slots[i].used[ordinal], memory_order_relaxed);
    return sum;
}

static bool is_within(uint64_t used, uint64_t bytes)
{
    uint64_t total = sim_settings()->memory_bytes;

    return used <= total && bytes <= total - used;
}

static CUresult take_private(struct sim_device *device, uint64_t bytes)
{
    uint_fast64_t used = atomic_load_explicit(&device->used_bytes, memory_order_relaxed);

    do {
        if (!is_within(used, bytes))
            return CUDA_ERROR_OUT_OF_MEMORY;
    } while (!atomic_compare_exchange_weak_explicit(&device->used_bytes, &used, used + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return CUDA_SUCCESS;
}

static CUresult take_shared_locked(int ordinal, uint64_t bytes)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (!lock_byte(0, F_WRLCK, true))
        return result;
    if (!is_within(sum_slots(ordinal), bytes))
        sweep();
    if (is_within(sum_slots(ordinal), bytes)) {
        atomic_fetch_add_explicit(&shared.slot->used[ordinal], bytes, memory_order_relaxed);
        result = CUDA_SUCCESS;
    }
    lock_byte(0, F_UNLCK, false);
    return result;
}

CUresult sim_capacity_take(struct sim_device *device, uint64_t bytes)
{
    CUresult result;

    pthread_mutex_lock(&shared.lock);
    if (is_shared_locked() && device->ordinal < MAX_DEVICES)
        result = take_shared_locked(device->ordinal, bytes);
    else
        result = take_private(device, bytes);
    pthread_mutex_unlock(&shared.lock);
    return result;
}

void sim_capacity_return(struct sim_device *device, uint64_t bytes)
{
    pthread_mutex_lock(&shared.lock);
    if (is_shared_locked() && device->ordinal < MAX_DEVICES)
        atomic_fetch_sub_explicit(&shared.slot->used[device->ordinal], bytes, memory_order_relaxed);
    else
        atomic_fetch_sub_explicit(&device->used_bytes, bytes, memory_order_relaxed);
    pthread_mutex_unlock(&shared.lock);
}

uint64_t sim_capacity_used(struct sim_device *device)
{
    uint64_t used;

    pthread_mutex_lock(&shared.lock);
    if (is_shared_locked() && device->ordinal < MAX_DEVICES) {
        if (lock_byte(0, F_WRLCK, true)) {
            sweep();
            lock_byte(0, F_UNLCK, false);
        }
        used = sum_slots(device->ordinal);
    } else {
        used = atomic_load_explicit(&device->used_bytes, memory_order_relaxed);
    }
    pthread_mutex_unlock(&shared.lock);
    return used;
}

atomic_uint_fast64_t *sim_capacity_link(struct sim_device *device, enum sim_direction direction)
{
    bool is_shared;

    pthread_mutex_lock(&shared.lock);
    is_shared = is_shared_locked() && device->ordinal < MAX_DEVICES;
    pthread_mutex_unlock(&shared.lock);
    return is_shared ? &shared.file->link_busy_ns[device->ordinal][direction]
                     : &device->link_busy_ns[direction];
}

/* Lists what the slots of live processes hold. Returns how many hold something. */
static unsigned list_slots(int ordinal, unsigned room, unsigned *pids, uint64_t *used)
{
    unsigned count = 0;

    for (int i = 0; i < SLOT_COUNT; i++) {
        struct slot *slot = &shared.file->slots[i];
        uint64_t bytes = atomic_load_explicit(&slot->used[ordinal], memory_order_relaxed);

        if (atomic_load_explicit(&slot->in_use, memory_order_acquire) == 0 || bytes == 0)
            continue;
        if (count < room) {
            pids[count] = atomic_load_explicit(&slot->pid, memory_order_relaxed);
            used[count] = bytes;
        }
        count++;
    }
    return count;
}

unsigned sim_capacity_holders(struct sim_device *device, unsigned room, unsigned *pids,
                              uint64_t *used)
{
    uint64_t mine = sim_capacity_used(device); /* sweeps the dead too */
    unsigned count;

    pthread_mutex_lock(&shared.lock);
    if (is_shared_locked() && device->ordinal < MAX_DEVICES) {
        count = list_slots(device->ordinal, room, pids, used);
    } else {
        count = mine != 0;
        if (count && room) {
            pids[0] = (unsigned)getpid();
            used[0] = mine;
        }
    }
    pthread_mutex_unlock(&shared.lock);
    return count;
}
