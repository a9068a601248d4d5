/* NVML by dlopen and dlsym, as most clients find it: see nvml_client.h. With NVML_GLOBAL set its
 * names are looked up in the process's own scope. */
/* link: -l:libcuda.so.1 */
#include "tests/preload/progs/nvml_client.h"

#include <dlfcn.h>

static void *find(void *library, const char *name)
{
    void *found = dlsym(library, name);

    require(found != NULL, name);
    return found;
}

int main(int argc, char **argv)
{
    const int is_global = getenv("NVML_GLOBAL") != NULL;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | (is_global ? RTLD_GLOBAL : RTLD_LOCAL));
    struct nvml nvml;

    require(library != NULL, "no NVML");
    library = is_global ? RTLD_DEFAULT : library;
    *(void **)&nvml.init = find(library, "nvmlInit_v2");
    *(void **)&nvml.shutdown = find(library, "nvmlShutdown");
    *(void **)&nvml.count = find(library, "nvmlDeviceGetCount_v2");
    *(void **)&nvml.handle = find(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&nvml.uuid = find(library, "nvmlDeviceGetUUID");
    *(void **)&nvml.memory = find(library, "nvmlDeviceGetMemoryInfo");
    *(void **)&nvml.memory_v2 = find(library, "nvmlDeviceGetMemoryInfo_v2");
    return nvml_client_main(&nvml, argc, argv);
}
