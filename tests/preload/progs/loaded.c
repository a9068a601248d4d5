/* Loads a library that uses CUDA in its constructor while another thread makes the process' first
 * CUDA call. usage: loaded PATH/libloaded.so */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static void *start(void *unused)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*init)(unsigned) = NULL;

    *(void **)&init = driver == NULL ? NULL : dlsym(driver, "cuInit");
    printf("thread: %d\n", init == NULL ? -1 : init(0));
    return unused;
}

int main(int argc, char **argv)
{
    struct timespec pause = {0, 5000000};
    int (*run)(void) = NULL;
    pthread_t thread;
    void *library;

    if (argc < 2 || pthread_create(&thread, NULL, start, NULL) != 0)
        return 2;
    nanosleep(&pause, NULL);
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    pthread_join(thread, NULL);
    if (library == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    *(void **)&run = dlsym(library, "loaded_run");
    printf("run: %d\n", run == NULL ? -1 : run());
    return 0;
}
