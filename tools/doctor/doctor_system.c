/* Obstacles between the library and a program: the loader's settings, the container, limits on
 * host memory, the ledger. */
#define _GNU_SOURCE
#include "core/ledger/ledger.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/doctor_backend.h"
#include "tools/doctor/doctor_elf.h"
#include "tools/live/live.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Address space that the library reserves for its table; pages are committed as they are
 * written. */
#define ADDRESS_ROOM_BYTES (UINT64_C(64) << 30)
#define SHARED_ROOM_BYTES (UINT64_C(4) << 20)

static size_t read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    size_t used = 0;
    if (file != NULL) {
        used = fread(text, 1, size - 1, file);
        fclose(file);
    }
    text[used] = '\0';
    return used;
}

/* ---- the loader ---- */

/* Another library that exports the same names: the order decides which one a program calls. */
static void examine_preloaded(struct doctor *doctor, const char *where, const char *path)
{
    struct doctor_elf elf;
    char error[128];
    if (path[0] == '/' && access(path, F_OK) != 0) {
        doctor_report(doctor, DOCTOR_WARNING, "loader", "%s names %s: %s", where, path,
                      strerror(errno));
        doctor_advise(
            doctor,
            "remove the name, or install the library: the loader warns at each program's start "
            "and goes on without it");
        return;
    }
    if (strstr(path, "libgpucache.so") != NULL) {
        doctor_report(doctor, DOCTOR_OK, "loader", "%s names %s", where, path);
        return;
    }
    if (strchr(path, '/') == NULL || !doctor_elf_read(path, &elf, error, sizeof(error))) {
        doctor_report(doctor, DOCTOR_INFO, "loader", "%s names %s too", where, path);
        return;
    }
    if (elf.defines_allocation) {
        doctor_report(doctor, DOCTOR_WARNING, "loader",
                      "%s names %s, which intercepts CUDA calls too", where, path);
        doctor_advise(
            doctor,
            "use one of them: the first in the list is called first, and two caches or limits on "
            "one device count everything twice");
    } else {
        doctor_report(doctor, DOCTOR_INFO, "loader", "%s names %s too; it intercepts no CUDA call",
                      where, path);
    }
}

static void examine_list(struct doctor *doctor, const char *where, char *list)
{
    for (char *path; (path = strsep(&list, " :\n\t")) != NULL;) {
        if (path[0] != '\0')
            examine_preloaded(doctor, where, path);
    }
}

static void examine_loader(struct doctor *doctor)
{
    char text[8192];
    const char *preload = getenv("LD_PRELOAD");
    if (preload != NULL) {
        snprintf(text, sizeof(text), "%s", preload);
        examine_list(doctor, "LD_PRELOAD", text);
    }
    if (read_text("/etc/ld.so.preload", text, sizeof(text)) > 0)
        examine_list(doctor, "/etc/ld.so.preload", text);
    if (getenv("LD_AUDIT") != NULL) {
        doctor_report(doctor, DOCTOR_INFO, "loader", "LD_AUDIT is set: %s", getenv("LD_AUDIT"));
        doctor_advise(doctor, "unset it if programs start slowly or calls are not intercepted");
    }
    if (doctor_backend_checker_is_injected()) {
        doctor_report(doctor, DOCTOR_INFO, "loader",
                      "CUDA_INJECTION64_PATH is set: the driver loads a memory checker, %s",
                      getenv("CUDA_INJECTION64_PATH"));
        doctor_advise(doctor, "the mode is track unless GPUCACHE_MODE is set: in the cache's pages "
                              "it would miss an overrun");
    } else if (getenv("CUDA_INJECTION64_PATH") != NULL) {
        doctor_report(doctor, DOCTOR_INFO, "loader",
                      "CUDA_INJECTION64_PATH is set: the driver loads a profiler, %s",
                      getenv("CUDA_INJECTION64_PATH"));
        doctor_advise(doctor, "calls that it must see go to the runtime: allocations cost more "
                              "than without it");
    }
}

/* ---- the container ---- */

static const char *container(void)
{
    char text[4096];
    if (getenv("KUBERNETES_SERVICE_HOST") != NULL)
        return "a Kubernetes pod";
    if (access("/.dockerenv", F_OK) == 0)
        return "a Docker container";
    if (access("/run/.containerenv", F_OK) == 0)
        return "a Podman container";
    if (read_text("/proc/1/environ", text, sizeof(text)) > 0 && strstr(text, "container=") == text)
        return "a container";
    return NULL;
}

static void examine_container(struct doctor *doctor)
{
    const char *kind = container();
    const char *visible = getenv("NVIDIA_VISIBLE_DEVICES");
    if (kind == NULL)
        return;
    doctor_report(doctor, DOCTOR_INFO, "container", "this is %s", kind);
    if (access("/dev/nvidiactl", F_OK) != 0 && access("/dev/dxg", F_OK) != 0) {
        doctor_report(doctor, DOCTOR_WARNING, "container", "it has no /dev/nvidiactl%s%s",
                      visible != NULL ? ", NVIDIA_VISIBLE_DEVICES=" : "",
                      visible != NULL ? visible : "");
        doctor_advise(
            doctor, "to use a GPU, start it with NVIDIA's runtime (docker run --gpus all, a device "
                    "plugin, or CDI)");
    }
}

static bool is_wsl(void)
{
    char release[256];
    return access("/dev/dxg", F_OK) == 0 ||
           (read_text("/proc/sys/kernel/osrelease", release, sizeof(release)) > 0 &&
            strcasestr(release, "microsoft") != NULL);
}

/* ---- limits of the host ---- */

static void examine_limits(struct doctor *doctor)
{
    struct rlimit limit;
    struct statvfs shared;
    char text[64];
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < ADDRESS_ROOM_BYTES) {
        doctor_report(doctor, DOCTOR_WARNING, "limits",
                      "addresses are limited to %llu MiB (ulimit -v)",
                      (unsigned long long)limit.rlim_cur >> 20);
        doctor_advise(
            doctor,
            "ulimit -v unlimited: the library and CUDA reserve addresses that they never use; if "
            "its table does not fit, the library passes calls through");
    }
    if (read_text("/proc/sys/vm/overcommit_memory", text, sizeof(text)) > 0 && text[0] == '2') {
        doctor_report(doctor, DOCTOR_INFO, "limits",
                      "the kernel commits all requested memory (vm.overcommit_memory = 2)");
        doctor_advise(
            doctor, "a pause moves device memory to the host and may fail for lack of host memory");
    }
    if (statvfs("/dev/shm", &shared) == 0 &&
        (uint64_t)shared.f_bavail * shared.f_frsize < SHARED_ROOM_BYTES) {
        doctor_report(doctor, DOCTOR_WARNING, "limits", "/dev/shm has %llu KiB left",
                      (unsigned long long)shared.f_bavail * shared.f_frsize >> 10);
        doctor_advise(doctor, "groups and gpucache top need 2 MiB there: docker run --shm-size, or "
                              "GPUCACHE_LEDGER=FOLDER elsewhere");
    }
    if (is_wsl())
        doctor_report(
            doctor, DOCTOR_INFO, "system",
            "this is the Windows Subsystem for Linux: plain driver allocations back the cache; "
            "memory is not mapped page by page");
}

/* ---- the ledger ---- */

static void examine_ledger(struct doctor *doctor)
{
    struct node node = {.count = 0};
    char reason[GC_LEDGER_REASON_BYTES];
    const enum gc_status status = live_open_node(&node, false, reason);
    if (status == GC_NOT_OURS) {
        doctor_report(doctor, DOCTOR_OK, "ledger",
                      "does not exist yet: the first process creates it");
    } else if (status != GC_OK) {
        doctor_report(doctor, DOCTOR_FAILURE, "ledger", "%s", reason);
        doctor_advise(
            doctor,
            "remove it when no process uses it, or name another folder in GPUCACHE_LEDGER; until "
            "then group limits are not enforced");
    } else {
        doctor_report(doctor, DOCTOR_OK, "ledger", "%s", node.ledgers[0].ledger.path);
    }
    node_close(&node);
}

void doctor_system(struct doctor *doctor)
{
    examine_loader(doctor);
    examine_container(doctor);
    examine_limits(doctor);
    examine_ledger(doctor);
}
