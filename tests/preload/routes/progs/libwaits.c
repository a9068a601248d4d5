/* A library whose constructor runs the function at the address in LIBWAITS_RUN in a thread and
 * waits for it, for `loader`: the dynamic linker's lock is held meanwhile. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 20

static __attribute__((constructor)) void run_and_wait(void)
{
    const char *text = getenv("LIBWAITS_RUN");
    void *(*run)(void *) = NULL;
    struct timespec end;
    pthread_t thread;
    *(void **)&run = text == NULL ? NULL : (void *)strtoul(text, NULL, 16);
    if (run == NULL || pthread_create(&thread, NULL, run, NULL) != 0)
        return;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_S;
    if (pthread_timedjoin_np(thread, NULL, &end) != 0) {
        fflush(stdout);
        _exit(3);
    }
}
