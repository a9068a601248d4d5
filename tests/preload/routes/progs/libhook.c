/* Another preload library that wraps dlsym, as profilers and hooks do: it finds the real one by
 * version and counts what passes. Says at exit how much did if HOOK_SAYS is set. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned passed;

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name)
{
    static void *(*real)(void *, const char *);

    if (real == NULL)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (real == NULL)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (real == NULL)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
    passed++;
    return real(handle, name);
}

__attribute__((destructor)) static void print_result(void)
{
    if (getenv("HOOK_SAYS") != NULL)
        fprintf(stderr, "hook: %u look-ups\n", passed);
}
