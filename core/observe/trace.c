/* The recorder. Events are copied into one of two buffers under a lock. The thread that fills a
 * buffer swaps in the other one, unlocks and writes the full one. Other threads continue meanwhile;
 * they wait only if they fill their buffer before that write is done. So the file has the records
 * in the order in which they were recorded, memory is bounded, and no lock is held across a write.
 *
 * A buffer is also written when a record comes over a second after the last write: a killed process
 * loses little. */
#define _GNU_SOURCE
#include "core/observe/trace.h"

#include "core/io/process.h"
#include "core/io/writer.h"
#include "core/observe/trace_format.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_RECORDS 1600
#define WRITE_INTERVAL_NS UINT64_C(1000000000)
#define LEVELS_INTERVAL_NS UINT64_C(1000000)

struct file_identity {
    uint32_t major;
    uint32_t minor;
    uint64_t inode;
};

/* The last recorded levels of a device. Each member is read and written alone: two threads that see
 * the same change record it twice, which is harmless. */
struct last_levels {
    _Atomic uint64_t reserved_bytes;
    _Atomic uint64_t pending_bytes;
    _Atomic uint64_t limit_bytes;
    _Atomic uint64_t time_ns;
};

struct gc_trace {
    pthread_mutex_t
        lock; /* guards everything up to the blank line; a leaf: no lock is taken under it */
    pthread_cond_t written;
    struct gc_trace_file_record *active;
    struct gc_trace_file_record *spare;
    size_t used;  /* records in active */
    bool writing; /* a thread writes the full buffer; spare is not free */
    uint64_t last_write_ns;

    int fd;
    struct file_identity identity; /* identity of the file behind fd while fd is the recorder's */
    const struct gc_log *log;
    atomic_bool stopped;
    atomic_bool has_stacks;
    _Atomic uint32_t thread_count;
    char path[4096];
    struct last_levels levels[UINT8_MAX + 1];
    struct gc_trace_file_record buffers[2][BUFFER_RECORDS];
};

/* Programs close descriptors that they did not open (daemons, closefrom), and the number may then
 * belong to another file. The recorder's descriptor is moved to a high number and checked before
 * each write. */
#define FD_LOWEST 512

static bool identify(int fd, struct file_identity *identity)
{
    struct statx info; /* older than glibc's fstat symbol */

    if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_INO, &info) != 0)
        return false;
    *identity = (struct file_identity){info.stx_dev_major, info.stx_dev_minor, info.stx_ino};
    return true;
}

static bool fd_is_ours(const struct gc_trace *trace)
{
    struct file_identity now;

    return identify(trace->fd, &now) && now.major == trace->identity.major &&
           now.minor == trace->identity.minor && now.inode == trace->identity.inode;
}

static int move_high(int fd)
{
    const int high = fcntl(fd, F_DUPFD_CLOEXEC, FD_LOWEST);

    if (high < 0)
        return fd; /* RLIMIT_NOFILE is low */
    close(fd);
    return high;
}

/* The calling thread's number, the same in every trace. */
static __thread uint32_t thread_number;
/* The thread is recording: a signal handler on it must not wait for the lock. */
static __thread bool is_recording;

static void stop(struct gc_trace *trace, int error)
{
    if (!atomic_exchange_explicit(&trace->stopped, true, memory_order_relaxed))
        gc_log_write(trace->log, GC_LOG_ERROR, "trace %s: %s; recording stops", trace->path,
                     strerror(error));
}

/* ---- the file ---- */

/* Accepts an empty file, or a trace, which may be overwritten. */
static enum gc_status check_file(int fd, const char **why)
{
    struct statx info; /* older than glibc's fstat symbol */
    char magic[sizeof(GC_TRACE_MAGIC) - 1];
    *why = NULL;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &info) != 0)
        return GC_IO;
    if (!S_ISREG(info.stx_mode)) {
        *why = "not a regular file";
        return GC_IO;
    }
    if (info.stx_size == 0)
        return GC_OK;
    if (pread(fd, magic, sizeof(magic), 0) != (ssize_t)sizeof(magic) ||
        memcmp(magic, GC_TRACE_MAGIC, sizeof(magic)) != 0) {
        *why = "exists and is not a trace; not overwritten";
        return GC_IO;
    }
    return GC_OK;
}

static enum gc_status open_file(const char *path, int *opened, const char **why)
{
    *why = NULL;
    const int fd = gc_writer_raise_fd(
        open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666));
    if (fd < 0) {
        if (errno == ELOOP)
            *why = "is a symbolic link, not followed";
        return GC_IO;
    }
    if (check_file(fd, why) != GC_OK)
        goto fail;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        *why = "another process records into it; %p in the path keeps them apart";
        goto fail;
    }
    if (ftruncate(fd, 0) != 0)
        goto fail;
    *opened = fd;
    return GC_OK;
fail:;
    const int error = errno;
    close(fd);
    errno = error;
    return GC_IO;
}

static enum gc_status write_header(int fd, const struct gc_process *process,
                                   const char *const *api_names, uint16_t api_count)
{
    static const char zeros[8];
    struct gc_writer out;
    struct gc_trace_header header = {
        .version = GC_TRACE_VERSION,
        .record_bytes = sizeof(struct gc_trace_file_record),
        .api_count = api_count,
        .pid = (uint64_t)process->pid,
        .start_unix = (uint64_t)time(NULL),
    };
    size_t bytes = sizeof(header);
    for (uint16_t i = 0; i < api_count; i++)
        bytes += strlen(api_names[i]) + 1;
    const size_t padding = (8 - bytes % 8) % 8;
    memcpy(header.magic, GC_TRACE_MAGIC, sizeof(header.magic));
    header.header_bytes = (uint32_t)(bytes + padding);
    gc_writer_init(&out, fd);
    gc_writer_bytes(&out, (const char *)&header, sizeof(header));
    for (uint16_t i = 0; i < api_count; i++)
        gc_writer_bytes(&out, api_names[i], strlen(api_names[i]) + 1);
    gc_writer_bytes(&out, zeros, padding);
    return gc_writer_flush(&out);
}

static enum gc_status create(int fd, const char *path, const struct gc_log *log,
                             struct gc_trace **created)
{
    struct gc_trace *trace =
        mmap(NULL, sizeof(*trace), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (trace == MAP_FAILED)
        return GC_NO_HOST_MEMORY;
    pthread_mutex_init(&trace->lock, NULL);
    pthread_cond_init(&trace->written, NULL);
    trace->active = trace->buffers[0];
    trace->spare = trace->buffers[1];
    trace->fd = move_high(fd);
    if (!identify(trace->fd, &trace->identity))
        trace->identity = (struct file_identity){0};
    trace->log = log;
    atomic_init(&trace->stopped, false);
    atomic_init(&trace->has_stacks, false);
    atomic_init(&trace->thread_count, 0);
    memcpy(trace->path, path, strlen(path) + 1);
    *created = trace;
    return GC_OK;
}

enum gc_status gc_trace_open(const char *path, const char *const *api_names, uint16_t api_count,
                             const struct gc_log *log, struct gc_trace **trace)
{
    struct gc_process process;
    char expanded[sizeof((*trace)->path)];
    const char *why = NULL;
    const int saved_errno = errno;
    int fd = -1;
    gc_process_describe(&process);
    enum gc_status status = gc_process_expand(&process, path, expanded, sizeof(expanded));
    if (status != GC_OK) {
        why = "the path is too long";
        memcpy(expanded, "", 1);
        goto fail;
    }
    status = open_file(expanded, &fd, &why);
    if (status != GC_OK)
        goto fail;
    status = write_header(fd, &process, api_names, api_count);
    if (status == GC_OK)
        status = create(fd, expanded, log, trace);
    if (status != GC_OK) {
        why = status == GC_NO_HOST_MEMORY ? gc_status_text(status) : NULL;
        goto fail;
    }
    errno = saved_errno;
    return GC_OK;
fail:
    gc_log_write(log, GC_LOG_ERROR, "trace %s: %s; nothing is recorded", expanded,
                 why != NULL ? why : strerror(errno));
    if (fd >= 0)
        close(fd);
    errno = saved_errno;
    return status;
}

/* ---- recording ---- */

/* Swaps the buffers; *records is the one to write, the result its count. The caller holds the lock
 * and has seen !writing. */
static size_t swap_buffers_locked(struct gc_trace *trace, struct gc_trace_file_record **records)
{
    const size_t count = trace->used;
    *records = trace->active;
    trace->active = trace->spare;
    trace->spare = *records;
    trace->used = 0;
    trace->writing = true;
    return count;
}

static void write_full(struct gc_trace *trace, const struct gc_trace_file_record *records,
                       size_t count)
{
    const int saved_errno = errno;
    if (count > 0 && !fd_is_ours(trace))
        stop(trace, EBADF);
    else if (count > 0 &&
             gc_writer_write_all(trace->fd, records, count * sizeof(*records)) != GC_OK)
        stop(trace, errno);
    pthread_mutex_lock(&trace->lock);
    trace->writing = false;
    pthread_cond_broadcast(&trace->written);
    pthread_mutex_unlock(&trace->lock);
    errno = saved_errno;
}

static bool is_stopped(const struct gc_trace *trace)
{
    return atomic_load_explicit(&trace->stopped, memory_order_relaxed);
}

static void set_recording(bool is)
{
    atomic_signal_fence(memory_order_seq_cst);
    is_recording = is;
    atomic_signal_fence(memory_order_seq_cst);
}

bool gc_trace_is_recording(void)
{
    return is_recording;
}

void gc_trace_record(struct gc_trace *trace, const struct gc_trace_event *event)
{
    struct gc_trace_file_record *records = NULL;
    size_t count = 0;
    if (trace == NULL || is_stopped(trace))
        return;
    if (event->thread == 0 && thread_number == 0)
        thread_number =
            atomic_fetch_add_explicit(&trace->thread_count, 1, memory_order_relaxed) + 1;
    const struct gc_trace_file_record record = {
        .op = event->op,
        .device = event->device,
        .api = event->api,
        .thread = event->thread != 0 ? event->thread : thread_number,
        .address = event->address,
        .bytes = event->bytes,
        .stream = event->stream,
        .time_ns = event->time_ns,
    };
    set_recording(true);
    pthread_mutex_lock(&trace->lock);
    while (trace->used == BUFFER_RECORDS && trace->writing)
        pthread_cond_wait(&trace->written, &trace->lock);
    const bool full = trace->used == BUFFER_RECORDS;
    const bool due = trace->used > 0 && !trace->writing &&
                     record.time_ns > trace->last_write_ns + WRITE_INTERVAL_NS;
    if (full || due)
        count = swap_buffers_locked(trace, &records);
    if (count > 0 || trace->last_write_ns == 0)
        trace->last_write_ns = record.time_ns;
    trace->active[trace->used++] = record;
    pthread_mutex_unlock(&trace->lock);
    if (count > 0)
        write_full(trace, records, count);
    set_recording(false);
}

static bool differs(_Atomic uint64_t *last, uint64_t value)
{
    return atomic_load_explicit(last, memory_order_relaxed) != value;
}

static bool are_due(struct last_levels *last, const struct gc_trace_levels *levels,
                    uint64_t time_ns)
{
    if (differs(&last->reserved_bytes, levels->reserved_bytes) ||
        differs(&last->limit_bytes, levels->limit_bytes))
        return true;
    return differs(&last->pending_bytes, levels->pending_bytes) &&
           time_ns >
               atomic_load_explicit(&last->time_ns, memory_order_relaxed) + LEVELS_INTERVAL_NS;
}

void gc_trace_record_levels(struct gc_trace *trace, uint8_t device,
                            const struct gc_trace_levels *levels, uint64_t time_ns)
{
    if (trace == NULL || !are_due(&trace->levels[device], levels, time_ns))
        return;
    struct last_levels *last = &trace->levels[device];
    const struct gc_trace_event event = {
        .op = GC_TRACE_LEVELS,
        .device = device,
        .address = levels->reserved_bytes,
        .bytes = levels->pending_bytes,
        .stream = levels->limit_bytes,
        .time_ns = time_ns,
    };
    atomic_store_explicit(&last->reserved_bytes, levels->reserved_bytes, memory_order_relaxed);
    atomic_store_explicit(&last->pending_bytes, levels->pending_bytes, memory_order_relaxed);
    atomic_store_explicit(&last->limit_bytes, levels->limit_bytes, memory_order_relaxed);
    atomic_store_explicit(&last->time_ns, time_ns, memory_order_relaxed);
    gc_trace_record(trace, &event);
}

void gc_trace_set_stacks(struct gc_trace *trace)
{
    const uint32_t version = GC_TRACE_VERSION_STACKS;
    const int saved_errno = errno;
    if (is_stopped(trace) ||
        atomic_exchange_explicit(&trace->has_stacks, true, memory_order_relaxed))
        return;
    if (!fd_is_ours(trace))
        stop(trace, EBADF);
    else if (pwrite(trace->fd, &version, sizeof(version),
                    offsetof(struct gc_trace_header, version)) != (ssize_t)sizeof(version))
        stop(trace, errno);
    errno = saved_errno;
}

void gc_trace_flush(struct gc_trace *trace)
{
    struct gc_trace_file_record *records;
    if (trace == NULL || is_stopped(trace))
        return;
    pthread_mutex_lock(&trace->lock);
    while (trace->writing)
        pthread_cond_wait(&trace->written, &trace->lock);
    const size_t count = swap_buffers_locked(trace, &records);
    pthread_mutex_unlock(&trace->lock);
    write_full(trace, records, count);
}

void gc_trace_close(struct gc_trace *trace)
{
    if (trace == NULL)
        return;
    gc_trace_flush(trace);
    if (fd_is_ours(trace))
        close(trace->fd);
    munmap(trace, sizeof(*trace));
}
