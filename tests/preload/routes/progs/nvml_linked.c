/* NVML as a library the program is linked with: see nvml_client.h. */
/* link: -l:libnvidia-ml.so.1 -l:libcuda.so.1 */
#include "tests/preload/progs/nvml_client.h"

int main(int argc, char **argv)
{
    const struct nvml nvml = {nvmlInit_v2,
                              nvmlShutdown,
                              nvmlDeviceGetCount_v2,
                              nvmlDeviceGetHandleByIndex_v2,
                              nvmlDeviceGetUUID,
                              nvmlDeviceGetMemoryInfo,
                              nvmlDeviceGetMemoryInfo_v2};

    return nvml_client_main(&nvml, argc, argv);
}
