/* Collects the report and writes it to its destination: a file is written beside its path and
 * renamed, so it appears whole or not at all. */
#define _GNU_SOURCE
#include "core/report/report.h"
#include "core/io/text.h"
#include "core/io/writer.h"
#include "core/report/tables.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096

/* ---- the destination ---- */

static enum gc_status write_format(const struct gc_report *report, const char *path, int fd)
{
    if (gc_text_ends_with(path, ".json"))
        return gc_report_write_json(report, fd);
    if (gc_text_ends_with(path, ".html"))
        return gc_report_write_html(report, fd);
    if (gc_text_ends_with(path, ".prom"))
        return gc_report_write_prom(report, fd);
    return gc_report_write_text(report, fd);
}

/* A device or a fifo: written directly. */
static enum gc_status write_in_place(const struct gc_report *report, const char *path)
{
    const int fd =
        gc_writer_raise_fd(open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (fd < 0)
        return GC_IO;
    enum gc_status status = write_format(report, path, fd);
    const int error = errno;
    if (close(fd) != 0 && status == GC_OK)
        return GC_IO;
    errno = error;
    return status;
}

static enum gc_status write_beside(const struct gc_report *report, const char *path)
{
    char beside[PATH_BYTES];
    const int length = snprintf(beside, sizeof(beside), "%s.%lld.tmp", path,
                                (long long)report->facts.process->pid);
    if (length < 0 || (size_t)length >= sizeof(beside)) {
        errno = ENAMETOOLONG;
        return GC_IO;
    }
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST && unlink(beside) == 0) /* left by a process of the same PID */
        fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return GC_IO;
    fd = gc_writer_raise_fd(fd);
    if (fd < 0) {
        const int refused = errno;
        unlink(beside);
        errno = refused;
        return GC_IO;
    }
    enum gc_status status = ftruncate(fd, 0) == 0 ? write_format(report, path, fd) : GC_IO;
    int error = errno;
    if (close(fd) != 0 && status == GC_OK) {
        error = errno;
        status = GC_IO;
    }
    if (status == GC_OK && rename(beside, path) == 0)
        return GC_OK;
    if (status == GC_OK)
        error = errno;
    unlink(beside);
    errno = error;
    return GC_IO;
}

static enum gc_status write_file(const struct gc_report *report, const char *path,
                                 const struct gc_log *log)
{
    struct statx info; /* older than glibc's lstat symbol */
    enum gc_status status;
    const char *why = NULL;
    const bool exists = statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &info) == 0;
    if (exists && S_ISLNK(info.stx_mode)) {
        why = "is a symbolic link, not followed";
        status = GC_IO;
    } else if (exists && S_ISDIR(info.stx_mode)) {
        errno = EISDIR;
        status = GC_IO;
    } else if (exists && !S_ISREG(info.stx_mode)) {
        status = write_in_place(report, path);
    } else {
        status = write_beside(report, path);
    }
    if (status != GC_OK)
        gc_log_write(log, GC_LOG_ERROR, "report %s: %s; not written", path,
                     why != NULL ? why : strerror(errno));
    return status;
}

static enum gc_status write_stream(const struct gc_report *report, int fd, const char *name,
                                   const struct gc_log *log)
{
    const enum gc_status status = gc_report_write_text(report, fd);
    if (status != GC_OK)
        gc_log_write(log, GC_LOG_ERROR, "report %s: %s; not written", name, strerror(errno));
    return status;
}

static enum gc_status write_to(const struct gc_report *report, const char *destination,
                               const struct gc_log *log)
{
    char path[PATH_BYTES];
    if (strcmp(destination, "stderr") == 0)
        return write_stream(report, STDERR_FILENO, destination, log);
    if (strcmp(destination, "stdout") == 0)
        return write_stream(report, STDOUT_FILENO, destination, log);
    const enum gc_status status =
        gc_process_expand(report->facts.process, destination, path, sizeof(path));
    if (status != GC_OK) {
        gc_log_write(log, GC_LOG_ERROR, "report %s: the path is too long; not written",
                     destination);
        return GC_IO;
    }
    return write_file(report, path, log);
}

/* ---- from the core ---- */

struct collector {
    struct gc_leak *leaks;
    uint32_t count;
};

static void collect(void *argument, const struct gc_leak *leak)
{
    struct collector *collector = argument;
    if (collector->count < GC_REPORT_LEAK_MAX)
        collector->leaks[collector->count++] = *leak;
}

/* Leaks of all devices, in one mapping: the heads of the lists, then the leaks, then the groups. */
static enum gc_status collect_leaks(struct gc_core *core, const struct gc_snapshot *snapshot,
                                    void *memory)
{
    struct gc_report_leaks *heads = memory;
    struct gc_leak *entries = (struct gc_leak *)(heads + snapshot->device_count);
    struct gc_leak_group *groups =
        (struct gc_leak_group *)(entries + (size_t)snapshot->device_count * GC_REPORT_LEAK_MAX);
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        struct gc_leak_group *own = groups + (size_t)i * GC_REPORT_LEAK_MAX;
        uint32_t own_count;
        struct collector collector = {.leaks = entries + (size_t)i * GC_REPORT_LEAK_MAX};
        struct gc_device *device = gc_device_find(core, snapshot->devices[i].info.ordinal);
        if (device == NULL)
            continue;
        enum gc_status status =
            gc_snapshot_visit_leaks(core, device, GC_REPORT_LEAK_MAX, collect, &collector);
        if (status == GC_OK)
            status = gc_snapshot_group_leaks(core, device, own, GC_REPORT_LEAK_MAX, &own_count);
        if (status != GC_OK)
            return status;
        heads[i] = (struct gc_report_leaks){.leaks = collector.leaks,
                                            .groups = own,
                                            .count = collector.count,
                                            .group_count = own_count};
    }
    return GC_OK;
}

static bool frame_of_core(const void *source, uint32_t site, uint32_t index,
                          char text[GC_STACK_TEXT_BYTES])
{
    return gc_stacks_frame(source, site, index, text);
}

static void collect_sites(struct gc_stack_table *stacks, const struct gc_snapshot *snapshot,
                          void *memory)
{
    struct gc_report_sites *heads = memory;
    struct gc_stack_site *entries = (struct gc_stack_site *)(heads + snapshot->device_count);
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        struct gc_stack_site *sites = entries + (size_t)i * GC_REPORT_SITE_MAX;
        heads[i] = (struct gc_report_sites){
            .sites = sites,
            .count = gc_stacks_sites(stacks, snapshot->devices[i].info.ordinal, sites,
                                     GC_REPORT_SITE_MAX)};
    }
}

static void collect_spills(struct gc_core *core, const struct gc_snapshot *snapshot, void *memory)
{
    struct gc_report_spills *heads = memory;
    struct gc_spilled *entries = (struct gc_spilled *)(heads + snapshot->device_count);
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        struct gc_spilled *blocks = entries + (size_t)i * GC_SPILLS_MAX;
        const int ordinal = snapshot->devices[i].info.ordinal;
        heads[i] = (struct gc_report_spills){
            .blocks = blocks,
            .count = gc_snapshot_read_spills(core, ordinal, blocks, GC_SPILLS_MAX)};
    }
}

/* The leaks, sites and blocks in host memory of each device, in one mapping. */
struct lists {
    void *memory;
    size_t bytes;
    size_t leaks_bytes;
    size_t sites_bytes;
};

static enum gc_status map_lists(const struct gc_snapshot *snapshot, struct lists *lists)
{
    const size_t devices = snapshot->device_count;
    lists->leaks_bytes =
        devices * (sizeof(struct gc_report_leaks) +
                   GC_REPORT_LEAK_MAX * (sizeof(struct gc_leak) + sizeof(struct gc_leak_group)));
    lists->sites_bytes = devices * (sizeof(struct gc_report_sites) +
                                    GC_REPORT_SITE_MAX * sizeof(struct gc_stack_site));
    lists->bytes =
        lists->leaks_bytes + lists->sites_bytes + 1 +
        devices * (sizeof(struct gc_report_spills) + GC_SPILLS_MAX * sizeof(struct gc_spilled));
    lists->memory =
        mmap(NULL, lists->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return lists->memory != MAP_FAILED ? GC_OK : GC_NO_HOST_MEMORY;
}

static struct gc_report_stacks collect_stacks(struct gc_core *core,
                                              const struct gc_snapshot *snapshot,
                                              const struct lists *lists)
{
    struct gc_stack_table *stacks = gc_core_stacks(core);
    struct gc_report_stacks collected = {.source = stacks, .frame = NULL};
    if (stacks == NULL)
        return collected;
    collected.frame = frame_of_core;
    collected.lost = gc_stacks_lost(stacks);
    if (gc_core_lists_sites(core)) {
        void *memory = (char *)lists->memory + lists->leaks_bytes;
        collect_sites(stacks, snapshot, memory);
        collected.sites = memory;
    }
    return collected;
}

/* Groups that read the same are one. */
static void join_leaks(const struct gc_report *report, struct gc_report_leaks *heads)
{
    for (uint32_t i = 0; i < report->snapshot->device_count; i++)
        heads[i].group_count = gc_report_join_leaks(report, (struct gc_leak_group *)heads[i].groups,
                                                    heads[i].group_count);
}

enum gc_status gc_report_emit(struct gc_core *core, const struct gc_report_facts *facts,
                              const char *const *api_names, const char *destination,
                              const struct gc_log *log)
{
    struct gc_snapshot *snapshot;
    const int saved_errno = errno;
    if (strcmp(destination, "none") == 0)
        return GC_OK;
    enum gc_status status = gc_snapshot_take(core, &snapshot);
    if (status != GC_OK)
        goto fail;
    struct lists lists;
    status = map_lists(snapshot, &lists);
    if (status != GC_OK)
        goto free_snapshot;
    status = collect_leaks(core, snapshot, lists.memory);
    if (status == GC_OK) {
        void *spills = (char *)lists.memory + lists.leaks_bytes + lists.sites_bytes;
        collect_spills(core, snapshot, spills);
        const struct gc_report report = {.facts = *facts,
                                         .snapshot = snapshot,
                                         .api_names = api_names,
                                         .leaks = lists.memory,
                                         .spills = spills,
                                         .stacks = collect_stacks(core, snapshot, &lists)};
        join_leaks(&report, lists.memory);
        status = write_to(&report, destination, log);
    }
    munmap(lists.memory, lists.bytes);
free_snapshot:
    gc_snapshot_free(snapshot);
fail:
    if (status != GC_OK && status != GC_IO)
        gc_log_write(log, GC_LOG_ERROR, "report: %s; not written", gc_status_text(status));
    errno = saved_errno;
    return status;
}
