/* A library that allocates and is closed again, for `life dlclose`. */
#include "tests/preload/progs/program.h"

__attribute__((visibility("default"))) CUdeviceptr plugin_alloc(size_t bytes);

CUdeviceptr plugin_alloc(size_t bytes)
{
    return program_alloc(bytes);
}
