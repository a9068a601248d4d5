/* Requests entry points by cuGetProcAddress and prints for each whether it is the library's
 * wrapper, by name, and what calling it with nothing in its arguments gives: that of the driver
 * function behind it.
 *
 * usage: hidden | hidden symbol NAME | hidden entry NAME VERSION: the names below, or that alone by
 * dlsym or cuGetProcAddress. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*proc_function)(const char *, void **, int, uint64_t, int *);
typedef int (*entry_function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        int version;
        uint64_t flags;
    } queries[] = {
        {"cuMemAlloc", 2000, 0},       {"cuMemAlloc", 3020, 0},       {"cuMemAlloc", 13000, 0},
        {"cuMemAllocAsync", 11020, 0}, {"cuMemAllocAsync", 11020, 1}, {"cuMemAllocAsync", 13000, 2},
        {"cuMemAlloc", 13000, 2},      {"cuCtxCreate", 3020, 0},      {"cuCtxCreate", 11040, 0},
        {"cuSomethingNew", 13000, 0},  {"cuMemAlloc", 1000, 0},
    };
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    proc_function proc =
        driver == NULL ? NULL : (proc_function)dlsym(driver, "cuGetProcAddress_v2");

    if (proc == NULL)
        return 1;
    if (count > 2)
        ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
    if (count == 3) {
        printf("%s\n", dlsym(driver, arguments[2]) != NULL ? "found" : "none");
        return 0;
    }
    if (count == 4) {
        void *found = NULL;
        Dl_info info;
        int result = proc(arguments[2], &found, atoi(arguments[3]), 0, NULL);

        printf("%s\n", result != 0 || found == NULL                 ? "none"
                       : strcmp(arguments[1], "owner") != 0         ? "found"
                       : dladdr(found, &info) == 0                  ? "nowhere"
                       : strstr(info.dli_fname, "libgpucache") != 0 ? "wrapped"
                                                                    : "the driver's own");
        return 0;
    }
    for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++) {
        void *found = NULL;
        Dl_info info = {0};
        int status = 0;
        int result = proc(queries[i].name, &found, queries[i].version, queries[i].flags, &status);

        printf("%s %d %d: ", queries[i].name, queries[i].version, (int)queries[i].flags);
        if (result != 0 || found == NULL) {
            printf("none\n");
            continue;
        }
        dladdr(found, &info);
        printf("%s, %d\n",
               info.dli_fname != NULL && strstr(info.dli_fname, "libgpucache") != NULL
                   ? info.dli_sname
                   : "the driver's own",
               ((entry_function)found)(0, 0, 0, 0, 0));
    }
    return 0;
}
