/* The counted program, finding the driver by dlopen and dlsym. */
#include "tests/preload/progs/counted_entries.h"

#include <dlfcn.h>

static struct {
#define FIELD(name) __typeof__(name) *name;
    COUNTED_ENTRIES(FIELD)
#undef FIELD
} found;
#define D(name) found.name

#include "tests/preload/progs/counted.h"

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (driver == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return EXIT_FAILURE;
    }
#define FIND(name) *(void **)&found.name = dlsym(driver, #name);
    COUNTED_ENTRIES(FIND)
    return counted_run();
}
