/* The decision of the library about a device, one finding: the mode and the memory behind the
 * cache, by the rules of shim/driver/backend.c and shim/life/tools.c. */
#define _GNU_SOURCE
#include "tools/doctor/doctor_backend.h"
#include "core/config/options.h"
#include "core/io/elf.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECKER "libsanitizer-collection"

extern char **environ;

bool doctor_backend_checker_is_injected(void)
{
    const char *path = getenv("CUDA_INJECTION64_PATH");
    const char *slash = path == NULL ? NULL : strrchr(path, '/');
    return path != NULL && gc_elf_names_library(slash != NULL ? slash + 1 : path, CHECKER);
}

bool doctor_backend_is_tracked(const struct gc_options *options)
{
    return options->mode == GC_MODE_TRACK ||
           (options->mode == GC_MODE_CACHE && !gc_options_is_set(options, GC_OPTION_MODE) &&
            doctor_backend_checker_is_injected());
}

static bool is_wsl(void)
{
    char release[128] = "";
    const int fd = open("/proc/sys/kernel/osrelease", O_RDONLY | O_CLOEXEC);
    if (access("/dev/dxg", F_OK) == 0)
        return true;
    if (fd >= 0) {
        const ssize_t length = read(fd, release, sizeof(release) - 1);
        release[length > 0 ? length : 0] = '\0';
        close(fd);
    }
    return strstr(release, "icrosoft") != NULL;
}

/* The settings decide, whatever the device is. */
static bool report_settings(struct doctor *doctor, const char *topic,
                            const struct gc_options *options)
{
    if (options->mode == GC_MODE_OFF)
        doctor_report(doctor, DOCTOR_INFO, topic, "GPUCACHE_MODE=off: its memory is not cached");
    else if (options->mode == GC_MODE_TRACK)
        doctor_report(doctor, DOCTOR_INFO, topic,
                      "GPUCACHE_MODE=track: each allocation is the driver's, nothing is cached");
    else if (doctor_backend_is_tracked(options))
        doctor_report(doctor, DOCTOR_INFO, topic,
                      "a memory checker is injected: the mode is track, each allocation is the "
                      "driver's, nothing is cached");
    else if (options->backend == GC_BACKEND_DRIVER || options->backend == GC_BACKEND_WHOLE)
        doctor_report(doctor, DOCTOR_INFO, topic,
                      "GPUCACHE_BACKEND=%s: plain driver allocations back the cache",
                      options->backend == GC_BACKEND_DRIVER ? "driver" : "whole");
    else
        return false;
    return true;
}

static void report_mapping(struct doctor *doctor, const struct doctor_backend_facts *facts,
                           bool is_forced)
{
    const char *topic = facts->topic;
    if (!facts->maps_memory) {
        doctor_report(doctor, DOCTOR_WARNING, topic,
                      "it cannot map memory (virtual memory management)");
        doctor_advise(doctor, "plain driver allocations back the cache: fragmentation is possible; "
                              "newer drivers and devices can map memory");
    } else if (is_forced && facts->unreachable >= 0) {
        doctor_report(doctor, DOCTOR_WARNING, topic,
                      "GPUCACHE_BACKEND=vmm: it maps memory, and most copies of it to and from "
                      "device %d fail: neither can access the other's memory",
                      facts->unreachable);
        doctor_advise(doctor, "GPUCACHE_BACKEND=auto, or show the process one device "
                              "(CUDA_VISIBLE_DEVICES)");
    } else if (is_forced) {
        doctor_report(doctor, DOCTOR_OK, topic,
                      "GPUCACHE_BACKEND=vmm: it maps memory, the cache is elastic");
    } else if (is_wsl() || facts->is_shared_by_server) {
        doctor_report(doctor, DOCTOR_INFO, topic, "plain driver allocations back the cache: %s",
                      facts->is_shared_by_server ? "a multi-process server shares the device"
                                                 : "this is the Windows Subsystem for Linux");
        doctor_advise(doctor, "GPUCACHE_BACKEND=vmm maps its memory all the same");
    } else if (facts->unreachable >= 0) {
        doctor_report(doctor, DOCTOR_INFO, topic,
                      "plain driver allocations back the cache: it and device %d (and maybe "
                      "others) cannot access each other's memory",
                      facts->unreachable);
        doctor_advise(doctor, "most copies of mapped memory between such devices fail; a process "
                              "that is shown one (CUDA_VISIBLE_DEVICES) has mapped memory. "
                              "nvidia-smi topo -p2p r shows all pairs");
    } else {
        doctor_report(doctor, DOCTOR_OK, topic, "it maps memory: the cache is elastic");
    }
}

void doctor_backend_report(struct doctor *doctor, const struct doctor_backend_facts *facts)
{
    struct gc_log log = {.level = GC_LOG_ERROR, .fd = -1};
    struct gc_options *options;
    if (gc_options_load(environ, &log, &options) != GC_OK)
        return; /* doctor_library reports it */
    if (!report_settings(doctor, facts->topic, options))
        report_mapping(doctor, facts, options->backend == GC_BACKEND_VMM);
    gc_options_free(options);
}
