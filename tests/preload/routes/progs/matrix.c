/* Every row of api.def by one way of finding it: is what a program gets the library's wrapper?
 *
 * usage: matrix dlsym|global|next|proc1|proc2|runtime|nvml. Prints a line for each row that is not,
 * and how many rows were found: those that the driver has by that way. Fails where one is not
 * wrapped as it should be. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct row {
    const char *symbol, *base;
    int version, per_thread;
};

#define NONE 0
#define PTSZ 1
static const struct row driver_rows[] = {
#define API(symbol, base, version, variant, kind, parameters, arguments)                           \
    {#symbol, #base, version, variant},
#include "shim/api.def"
};
static const struct row runtime_rows[] = {
#define RUNTIME(symbol, kind, type, parameters, arguments) {#symbol, NULL, 0, 0},
#include "shim/api.def"
};
static const struct row nvml_rows[] = {
#define NVML(symbol, parameters, arguments) {#symbol, NULL, 0, 0},
#include "shim/api.def"
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

typedef int (*proc1_function)(const char *, void **, int, uint64_t);
typedef int (*proc2_function)(const char *, void **, int, uint64_t, int *);

static int is_ours(const void *address)
{
    Dl_info info;

    return dladdr(address, &info) != 0 && strstr(info.dli_fname, "libgpucache.so") != NULL;
}

static void *find(const char *way, void *handle, const struct row *row)
{
    void *found = NULL;
    int status;

    if (strcmp(way, "dlsym") == 0 || strcmp(way, "runtime") == 0 || strcmp(way, "nvml") == 0)
        return dlsym(handle, row->symbol);
    if (strcmp(way, "global") == 0)
        return dlsym(RTLD_DEFAULT, row->symbol);
    if (strcmp(way, "next") == 0)
        return dlsym(RTLD_NEXT, row->symbol);
    if (strcmp(way, "proc1") == 0) {
        proc1_function proc = (proc1_function)dlsym(handle, "cuGetProcAddress");
        return proc(row->base, &found, row->version, row->per_thread ? 2 : 0) == 0 ? found : NULL;
    }
    if (strcmp(way, "proc2") == 0) {
        proc2_function proc = (proc2_function)dlsym(handle, "cuGetProcAddress_v2");
        return proc(row->base, &found, row->version, row->per_thread ? 2 : 0, &status) == 0 ? found
                                                                                            : NULL;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "dlsym";
    const int is_runtime = strcmp(way, "runtime") == 0, is_nvml = strcmp(way, "nvml") == 0;
    const int is_scope = strcmp(way, "global") == 0 || strcmp(way, "next") == 0;
    const struct row *rows = is_runtime ? runtime_rows : is_nvml ? nvml_rows : driver_rows;
    const size_t count = is_runtime ? COUNT(runtime_rows)
                         : is_nvml  ? COUNT(nvml_rows)
                                    : COUNT(driver_rows);
    void *handle = dlopen(is_runtime ? "libcudart.so.13"
                          : is_nvml  ? "libnvidia-ml.so.1"
                                     : "libcuda.so.1",
                          RTLD_NOW | (is_scope ? RTLD_GLOBAL : RTLD_LOCAL));
    int looked = 0, bad = 0;

    if (handle == NULL) {
        printf("%s\n", dlerror());
        return 2;
    }
    for (size_t i = 0; i < count; i++) {
        void *exported = dlsym(handle, rows[i].symbol);
        void *found = find(way, handle, &rows[i]);

        if (found == NULL)
            continue;
        looked++;
        if ((found == exported || exported == NULL) && is_ours(found))
            continue;
        bad++;
        printf("%s by %s: %s\n", rows[i].symbol, way,
               is_ours(found) ? "wrapped by another entry point" : "not wrapped");
    }
    printf("%d found\n", looked);
    return bad != 0;
}
