/* The thread that answers other processes, in processes with a group: started when a device is
 * first used, so after CUDA, and never in a forked child. It blocks all signals, sleeps until a
 * request arrives, and only makes calls that the program's threads might make. */
#define _GNU_SOURCE
#include "shim/account/helper.h"
#include "shim/real/resolve.h"

#include <signal.h>
#include <sys/prctl.h>

static atomic_flag is_started = ATOMIC_FLAG_INIT;

static void *help(void *core)
{
    prctl(PR_SET_NAME, "gpucache", 0, 0, 0);
    gc_shim_enter(GC_API_COUNT); /* calls from inside the driver pass through */
    gc_serve_help(core);
    gc_shim_leave();
    return NULL;
}

void gc_helper_start(void)
{
    pthread_attr_t detached;
    sigset_t all, before;
    pthread_t thread;

    if (!gc_serve_wants_helper(gc_shim.core) || atomic_flag_test_and_set(&is_started))
        return;
    __typeof__(pthread_create) *create = gc_resolve_thread_calls()->create;
    if (create == NULL || pthread_attr_init(&detached) != 0)
        return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    if (create(&thread, &detached, help, gc_shim.core) != 0)
        gc_log_write(
            &gc_shim.log, GC_LOG_INFO,
            "could not start the group's helper thread: this process serves requests of others only when it allocates");
    sigprocmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
}
