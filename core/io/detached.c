#include "core/io/detached.h"

#include <signal.h>
#include <stddef.h>

bool gc_detached_start(gc_detached_create *create, void *(*work)(void *), void *argument)
{
    pthread_attr_t detached;
    sigset_t all;
    sigset_t before;
    pthread_t thread;
#ifdef __SANITIZE_THREAD__
    create = pthread_create; /* the sanitizer's: a thread that it does not know crashes */
#endif
    if (create == NULL || pthread_attr_init(&detached) != 0)
        return false;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before); /* the thread inherits it */
    const bool is_started = create(&thread, &detached, work, argument) == 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return is_started;
}
