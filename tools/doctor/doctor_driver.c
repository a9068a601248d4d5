/* The driver, the toolkit and the devices. The driver runs in a child process. */
#define _GNU_SOURCE
#include "core/io/text.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/doctor_backend.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRIVER_SECONDS 30 /* a cold start of many devices takes long */
#define TOPIC "driver"
#define VERSION_MIN 11080
#define VERSION_MPS 12040   /* from here on an attribute tells of a multi-process server */
#define VERSION_FENCE 12050 /* from here on one call fences all work of a context */

/* Values from cuda.h, which core and tools do not include. */
enum {
    ATTRIBUTE_COMPUTE_MODE = 20,
    ATTRIBUTE_MAPPING = 102,
    ATTRIBUTE_POOLS = 115,
    ATTRIBUTE_MPS = 133,
    MODE_PROHIBITED = 2,
    MODE_EXCLUSIVE = 3,
    UUID_BYTES = 16,
};

struct driver {
    int (*init)(unsigned flags);
    int (*version)(int *version);
    int (*count)(int *count);
    int (*get)(int *device, int ordinal);
    int (*name)(char *name, int bytes, int device);
    int (*total)(size_t *bytes, int device);
    int (*attribute)(int *value, int attribute, int device);
    int (*can_access)(int *can, int device, int peer);
    int (*error_name)(int error, const char **name);
};

static bool find(void *library, const char *name, void *function)
{
    *(void **)function = dlsym(library, name);
    return *(void **)function != NULL;
}

static bool find_all(void *library, struct driver *driver)
{
    return find(library, "cuInit", &driver->init) &&
           find(library, "cuDriverGetVersion", &driver->version) &&
           find(library, "cuDeviceGetCount", &driver->count) &&
           find(library, "cuDeviceGet", &driver->get) &&
           find(library, "cuDeviceGetName", &driver->name) &&
           find(library, "cuDeviceTotalMem_v2", &driver->total) &&
           find(library, "cuDeviceGetAttribute", &driver->attribute) &&
           find(library, "cuDeviceCanAccessPeer", &driver->can_access) &&
           find(library, "cuGetErrorName", &driver->error_name);
}

static const char *advice_of(int error)
{
    switch (error) {
    case 100:
        return "no device is visible: check CUDA_VISIBLE_DEVICES, the container's devices, nvidia-smi -L";
    case 803:
        return "the kernel driver's version differs from libcuda.so.1: reboot after an update, or "
               "mount the host's library into the container";
    case 804:
        return "the forward compatibility package does not fit this device: remove it";
    case 999:
        return "reload nvidia_uvm (modprobe -r nvidia_uvm; modprobe nvidia_uvm) or reboot";
    default:
        return "see nvidia-smi and dmesg";
    }
}

/* ---- devices ---- */

/* `control`: the pipe of a multi-process server's daemon. */
static bool has_server(char control[static 4096])
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    snprintf(control, 4096, "%s/control", folder != NULL ? folder : "/tmp/nvidia-mps");
    return access(control, F_OK) == 0;
}

static int attribute(const struct driver *driver, int which, int device)
{
    int value = 0;
    return driver->attribute(&value, which, device) == 0 ? value : 0;
}

static void examine_sharing(struct doctor *doctor, const struct driver *driver, const char *topic,
                            int device)
{
    const int mode = attribute(driver, ATTRIBUTE_COMPUTE_MODE, device);
    if (mode == MODE_PROHIBITED) {
        doctor_report(doctor, DOCTOR_FAILURE, topic, "its compute mode prohibits all programs");
        doctor_advise(doctor, "nvidia-smi -c DEFAULT");
    } else if (mode == MODE_EXCLUSIVE) {
        doctor_report(doctor, DOCTOR_INFO, topic, "only one process at a time may use it");
        doctor_advise(doctor, "nvidia-smi -c DEFAULT lets several processes share it");
    }
}

static bool are_peers(const struct driver *driver, int first, int second)
{
    int one, other, can = 0;
    return driver->get(&one, first) == 0 && driver->get(&other, second) == 0 &&
           driver->can_access(&can, one, other) == 0 && can != 0;
}

/* Consumer cards, and cards whose links cross processors' sockets. */
static int find_unreachable(const struct driver *driver, int ordinal, int count)
{
    for (int i = 0; i < count; i++)
        if (i != ordinal && (!are_peers(driver, ordinal, i) || !are_peers(driver, i, ordinal)))
            return i;
    return -1;
}

/* By the pipe of a server where the driver does not tell. */
static bool is_under_server(const struct driver *driver, int device)
{
    int version = 0;
    char control[4096];
    if (attribute(driver, ATTRIBUTE_MPS, device) != 0)
        return true;
    return driver->version(&version) == 0 && version < VERSION_MPS && has_server(control);
}

static void examine_device(struct doctor *doctor, const struct driver *driver, int ordinal,
                           int count)
{
    char name[128] = "?";
    char size[GC_TEXT_SIZE_BYTES];
    char topic[24];
    size_t bytes = 0;
    int device;
    snprintf(topic, sizeof(topic), "device %d", ordinal);
    if (driver->get(&device, ordinal) != 0 || driver->name(name, sizeof(name), device) != 0 ||
        driver->total(&bytes, device) != 0) {
        doctor_report(doctor, DOCTOR_FAILURE, topic, "the driver does not return its properties");
        doctor_advise(doctor, "nvidia-smi shows whether it has fallen off the bus");
        return;
    }
    doctor_report(doctor, DOCTOR_OK, topic, "%s, %s%s", name, gc_text_size(bytes, size),
                  strstr(name, "MIG") != NULL ? ", a MIG instance: percentages are of its memory"
                                              : "");
    doctor_backend_report(doctor,
                          &(struct doctor_backend_facts){
                              .topic = topic,
                              .maps_memory = attribute(driver, ATTRIBUTE_MAPPING, device) != 0,
                              .is_shared_by_server = is_under_server(driver, device),
                              .unreachable = find_unreachable(driver, ordinal, count)});
    if (attribute(driver, ATTRIBUTE_POOLS, device) == 0)
        doctor_report(doctor, DOCTOR_INFO, topic,
                      "it has no stream-ordered memory (cudaMallocAsync)");
    examine_sharing(doctor, driver, topic, device);
}

/* ---- the driver ---- */

static void examine_version(struct doctor *doctor, const struct driver *driver)
{
    int version = 0;
    Dl_info info;
    if (driver->version(&version) != 0)
        return;
    const char *path = dladdr(*(void *const *)&driver->init, &info) != 0 ? info.dli_fname : "?";
    doctor_report(doctor, DOCTOR_OK, TOPIC, "%s supports CUDA %d.%d", path, version / 1000,
                  version % 1000 / 10);
    if (version < VERSION_MIN) {
        doctor_report(doctor, DOCTOR_WARNING, TOPIC,
                      "it is older than CUDA 11.8, the oldest supported version");
        doctor_advise(doctor, "update the driver");
    } else if (version < VERSION_FENCE) {
        doctor_report(doctor, DOCTOR_INFO, TOPIC,
                      "before CUDA 12.5 a fence is an event on each stream that has had work since "
                      "the last one, not one call for all");
        doctor_advise(doctor, "with many busy streams a newer driver makes frees cheaper");
    }
}

static void query_driver(struct doctor *doctor)
{
    struct driver driver;
    const char *name = NULL;
    int count = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        doctor_report(doctor, DOCTOR_WARNING, TOPIC, "%s", dlerror());
        doctor_advise(
            doctor,
            "install NVIDIA's driver, or mount the host's into the container; without a driver "
            "the library does nothing");
        return;
    }
    if (!find_all(library, &driver)) {
        doctor_report(doctor, DOCTOR_FAILURE, TOPIC,
                      "libcuda.so.1 lacks calls that every driver has");
        doctor_advise(doctor, "it may be a stub for linking only: check LD_LIBRARY_PATH");
        return;
    }
    examine_version(doctor, &driver);
    const int error = driver.init(0);
    if (error != 0 || (driver.count(&count) != 0 || count == 0)) {
        const int shown = error != 0 ? error : 100;
        (void)driver.error_name(shown, &name);
        doctor_report(doctor, DOCTOR_FAILURE, TOPIC, "cuInit: %s (%d)", name != NULL ? name : "?",
                      shown);
        doctor_advise(doctor, "%s", advice_of(shown));
        return;
    }
    for (int i = 0; i < count; i++)
        examine_device(doctor, &driver, i, count);
}

/* ---- MIG, from NVML: CUDA shows a process one instance only ---- */

struct nvml {
    int (*init)(void);
    int (*count)(unsigned *count);
    int (*handle)(unsigned index, void **device);
    int (*mig)(void *device, unsigned *current, unsigned *pending);
};

static void query_nvml(struct doctor *doctor)
{
    struct nvml nvml;
    unsigned count = 0;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (library == NULL || !find(library, "nvmlInit_v2", &nvml.init) ||
        !find(library, "nvmlDeviceGetCount_v2", &nvml.count) ||
        !find(library, "nvmlDeviceGetHandleByIndex_v2", &nvml.handle) ||
        !find(library, "nvmlDeviceGetMigMode", &nvml.mig) || nvml.init() != 0 ||
        nvml.count(&count) != 0)
        return;
    for (unsigned i = 0; i < count; i++) {
        unsigned current = 0;
        unsigned pending = 0;
        void *device;
        if (nvml.handle(i, &device) != 0 || nvml.mig(device, &current, &pending) != 0)
            continue;
        if (current != 0 || pending != current)
            doctor_report(doctor, DOCTOR_INFO, "MIG", "device %u of NVML is %s instances%s", i,
                          current != 0 ? "divided into" : "not divided into",
                          pending != current ? ", which changes at its next reset" : "");
    }
}

/* ---- the toolkit ---- */

static void examine_toolkit(struct doctor *doctor)
{
    static const char *const patterns[] = {"/usr/local/cuda*/lib64/libcudart.so.[0-9]*",
                                           "/usr/local/cuda*/targets/*/lib/libcudart.so.[0-9]*",
                                           "/usr/lib/*-linux-gnu/libcudart.so.[0-9]*"};
    char shown[512] = "";
    const char *home = getenv("CUDA_HOME") != NULL ? getenv("CUDA_HOME") : getenv("CUDA_PATH");
    if (home != NULL && access(home, F_OK) != 0) {
        doctor_report(doctor, DOCTOR_INFO, "toolkit", "CUDA_HOME is %s, which does not exist",
                      home);
        doctor_advise(doctor, "it matters only to build programs");
    }
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        glob_t found;
        if (glob(patterns[i], 0, NULL, &found) != 0)
            continue;
        for (size_t j = 0; j < found.gl_pathc; j++) {
            char real[PATH_MAX];
            if (realpath(found.gl_pathv[j], real) == NULL || strstr(shown, real) != NULL ||
                strlen(shown) + strlen(real) + 3 > sizeof(shown))
                continue;
            strcat(strcat(shown, shown[0] != '\0' ? ", " : ""), real);
        }
        globfree(&found);
    }
    doctor_report(doctor, DOCTOR_OK, "toolkit", "%s%s",
                  shown[0] != '\0' ? "runtimes: " : "none is installed: programs bring their own",
                  shown);
}

static void examine_server(struct doctor *doctor)
{
    char control[4096];
    if (!has_server(control))
        return;
    doctor_report(doctor, DOCTOR_INFO, "MPS", "a multi-process server's daemon is running: %s",
                  control);
    doctor_advise(doctor,
                  "its own limits (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT) apply besides GPUCACHE_LIMIT");
}

void doctor_driver(struct doctor *doctor)
{
    doctor_apart(doctor, TOPIC, DRIVER_SECONDS, query_driver);
    doctor_apart(doctor, "NVML", DRIVER_SECONDS, query_nvml);
    examine_server(doctor);
    examine_toolkit(doctor);
}
