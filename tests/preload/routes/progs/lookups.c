/* The meaning of dlsym and dlvsym must not change: names of others, RTLD_NEXT, RTLD_DEFAULT,
 * dlerror, versions. Prints a line for each thing that is wrong.
 *
 * usage: lookups PATH/libnames.so. */
/* link: -rdynamic */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int failures;

static void check(const char *what, int is_right)
{
    if (!is_right)
        printf("wrong: %s\n", what);
    failures += !is_right;
}

__attribute__((visibility("default"))) int probe(void);
int probe(void)
{
    return 70;
}

static int call(void *function)
{
    int (*typed)(void) = NULL;

    *(void **)&typed = function;
    return typed == NULL ? -1 : typed();
}

static const char *owner(const void *address)
{
    Dl_info info;

    return address != NULL && dladdr(address, &info) != 0 ? info.dli_fname : "nobody";
}

static void check_without_cuda(void)
{
    void *program = dlopen(NULL, RTLD_NOW);

    dlerror();
    check("cuInit is not found where there is no CUDA", dlsym(RTLD_DEFAULT, "cuInit") == NULL);
    check("and dlerror says so", dlerror() != NULL);
    check("and once only", dlerror() == NULL);
    check("nor by the program's own handle",
          dlsym(program, "cuMemAlloc_v2") == NULL && dlerror() != NULL);
    check("nor behind the program", dlsym(RTLD_NEXT, "cudaMalloc") == NULL && dlerror() != NULL);
    check("nor with a version",
          dlvsym(RTLD_DEFAULT, "cudaMalloc", "libcudart.so.13") == NULL && dlerror() != NULL);
    check("an empty name is not found", dlsym(program, "") == NULL && dlerror() != NULL);
}

static void check_names_of_others(const char *path)
{
    void *names = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (names == NULL) {
        printf("%s\n", dlerror());
        failures++;
        return;
    }
    check("curl_easy_init", call(dlsym(names, "curl_easy_init")) == 1);
    check("cudnnCreate", call(dlsym(names, "cudnnCreate")) == 2);
    check("cufftPlan1d", call(dlsym(names, "cufftPlan1d")) == 3);
    check("cuMemAllocate", call(dlsym(names, "cuMemAllocate")) == 4);
    check("cudaMallocator", call(dlsym(names, "cudaMallocator")) == 5);
    check("another library's own cuMemAlloc_v2", call(dlsym(names, "cuMemAlloc_v2")) == 6);
    check("a success leaves no error", dlerror() == NULL);
    check("no such name", dlsym(names, "cuMemAlloc_v3") == NULL);
    check("its error names it", strstr(dlerror(), "cuMemAlloc_v3") != NULL);
    check("nothing is found in a local scope", dlsym(RTLD_DEFAULT, "cudnnCreate") == NULL);
    check("own function first", call(dlsym(RTLD_DEFAULT, "probe")) == 70);
    check("nothing behind the program", dlsym(RTLD_NEXT, "probe") == NULL && dlerror() != NULL);
    names = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    check("the next one is behind the program",
          call(dlsym(RTLD_NEXT, "probe")) == 7 ||
              strstr(owner(dlsym(RTLD_NEXT, "probe")), "libnames") == NULL);
}

static void check_versions(void)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW);

    check("a name with its version", dlvsym(libc, "memcpy", "GLIBC_2.14") != NULL ||
                                         dlvsym(libc, "memcpy", "GLIBC_2.17") != NULL);
    check("a name with a wrong version",
          dlvsym(libc, "memcpy", "GLIBC_9.9") == NULL && dlerror() != NULL);
}

static void check_with_cuda(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *wrapper = cuda == NULL ? NULL : dlsym(cuda, "cuMemAlloc_v2");

    check("the driver is there", cuda != NULL);
    check("its allocator is wrapped", strstr(owner(wrapper), "libgpucache") != NULL);
    check("a success leaves no error behind", dlerror() == NULL);
    check("the same each time", wrapper == dlsym(cuda, "cuMemAlloc_v2"));
    check("not in the global scope",
          dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == NULL ||
              strstr(owner(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")), "libnames") != NULL);
    check("what has no row is the driver's own",
          strstr(owner(dlsym(cuda, "cuDeviceGet")), "libcuda.so") != NULL);
    check("the first ABI is another function",
          dlsym(cuda, "cuMemAlloc") == NULL || dlsym(cuda, "cuMemAlloc") != wrapper);
}

static void check_with_runtime(void)
{
    void *runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);

    if (runtime == NULL)
        return;
    check("cudaMalloc is wrapped",
          strstr(owner(dlsym(runtime, "cudaMalloc")), "libgpucache") != NULL);
    check("cudaMalloc with its version is wrapped",
          strstr(owner(dlvsym(runtime, "cudaMalloc", "libcudart.so.13")), "libgpucache") != NULL);
    check("with another version it is not found",
          dlvsym(runtime, "cudaMalloc", "libcudart.so.99") == NULL);
    check("cudaGetLastError is the runtime's own",
          strstr(owner(dlsym(runtime, "cudaGetLastError")), "libcudart") != NULL);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    check_without_cuda();
    check_names_of_others(argv[1]);
    check_versions();
    check_with_cuda();
    check_with_runtime();
    return failures != 0;
}
