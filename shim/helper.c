/* The thread that answers other processes, in processes with a group: started when a device is
 * first used, so after CUDA, and never in a forked child. It blocks all signals, sleeps until
 * something is asked, and only makes calls that the program's threads might make. */
#define _GNU_SOURCE
#include "shim/elf.h"
#include "shim/shim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

typedef int create_thread(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static atomic_flag is_started = ATOMIC_FLAG_INIT;

static void *help(void *core)
{
    prctl(PR_SET_NAME, "gpucache", 0, 0, 0);
    gc_shim_enter(GC_API_COUNT); /* what the driver calls on our behalf passes through */
    gc_core_help(core);
    gc_shim_leave();
    return NULL;
}

/* Not linked against: its symbol has another version in newer C libraries, and older ones have it
 * in a library of its own, which the driver has loaded. */
static create_thread *find_create(void)
{
    const struct gc_libc *libc = gc_elf_libc();

    return libc->dlsym == NULL ? NULL
                               : (create_thread *)libc->dlsym(RTLD_DEFAULT, "pthread_create");
}

void gc_helper_start(void)
{
    pthread_attr_t detached;
    sigset_t all, before;
    pthread_t thread;
    create_thread *create;

    if (!gc_core_wants_helper(gc_shim.core) || atomic_flag_test_and_set(&is_started))
        return;
    create = find_create();
    if (create == NULL || pthread_attr_init(&detached) != 0)
        return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    if (create(&thread, &detached, help, gc_shim.core) != 0)
        gc_log_write(&gc_shim.log, GC_LOG_INFO,
                     "no thread to answer the group with: this process answers when it allocates");
    sigprocmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
}
