/* The driver API program, reaching the driver by dlopen and dlsym. */
#include "tests/clients/driver_entries.h"

#include <dlfcn.h>

#define ENTRY(name) static __typeof__(name) *client_entry_##name;
CLIENT_ENTRIES(ENTRY)
#define D(name) client_entry_##name
#include "tests/clients/driver_client.h"

static void find(void *library, const char *name, void *slot)
{
    void *function = dlsym(library, name);

    if (!function) {
        fprintf(stderr, "%s: %s\n", name, dlerror());
        exit(EXIT_FAILURE);
    }
    memcpy(slot, &function, sizeof(function));
}

int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return EXIT_FAILURE;
    }
#define FIND(name) find(library, #name, &client_entry_##name);
    CLIENT_ENTRIES(FIND)
    return client_run();
}
