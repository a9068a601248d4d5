/* For the wheel's tool: links with the glibc of the machine that builds, runs with glibc 2.31.
 * x86-64.
 *
 * glibc 2.32 to 2.34 gave these functions new symbol versions when they moved into libc.so.6, their
 * behaviour unchanged. Each is defined here and calls the old version, which libc.so.6, or
 * libpthread.so.0 and libdl.so.2 before 2.34, has to this day. `stat` and its kin were no functions
 * of the library before 2.33: they are the system calls.
 *
 * The definitions are the program's own (hidden), also for the static libraries in it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <features.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef __x86_64__
#error "the versions are those of x86-64"
#endif

#if __GLIBC_PREREQ(2, 32)
#define OLD_VERSION "GLIBC_2.2.5"

/* OLD(result, name, parameters, arguments): `name` as the program's own, which calls the old
 * version. */
#define OLD(result, name, parameters, arguments)                                                   \
    extern __typeof__(name) old_##name;                                                            \
    __asm__(".symver old_" #name "," #name "@" OLD_VERSION);                                       \
    result name parameters                                                                         \
    {                                                                                              \
        return old_##name arguments;                                                               \
    }

OLD(int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *old), (how, set, old))

#if __GLIBC_PREREQ(2, 33)
int stat(const char *path, struct stat *result)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, result, 0);
}

int lstat(const char *path, struct stat *result)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, result, AT_SYMLINK_NOFOLLOW);
}

int fstat(int descriptor, struct stat *result)
{
    return (int)syscall(SYS_newfstatat, descriptor, "", result, AT_EMPTY_PATH);
}

int fstatat(int folder, const char *path, struct stat *result, int flags)
{
    return (int)syscall(SYS_newfstatat, folder, path, result, flags);
}
#endif

#if __GLIBC_PREREQ(2, 34)
typedef void *start_function(void *argument);

OLD(void *, dlopen, (const char *path, int mode), (path, mode))
OLD(void *, dlsym, (void *handle, const char *name), (handle, name))
OLD(int, dlclose, (void *handle), (handle))
OLD(char *, dlerror, (void), ())
OLD(int, dladdr, (const void *address, Dl_info *info), (address, info))
OLD(int, pthread_create,
    (pthread_t * thread, const pthread_attr_t *attributes, start_function *start, void *argument),
    (thread, attributes, start, argument))
OLD(int, pthread_join, (pthread_t thread, void **result), (thread, result))
OLD(int, pthread_once, (pthread_once_t * once, void (*run)(void)), (once, run))
OLD(int, pthread_rwlock_init, (pthread_rwlock_t * lock, const pthread_rwlockattr_t *attributes),
    (lock, attributes))
OLD(int, pthread_rwlock_destroy, (pthread_rwlock_t * lock), (lock))
OLD(int, pthread_rwlock_rdlock, (pthread_rwlock_t * lock), (lock))
OLD(int, pthread_rwlock_tryrdlock, (pthread_rwlock_t * lock), (lock))
OLD(int, pthread_rwlock_wrlock, (pthread_rwlock_t * lock), (lock))
OLD(int, pthread_rwlock_unlock, (pthread_rwlock_t * lock), (lock))
OLD(int, pthread_barrier_init,
    (pthread_barrier_t * barrier, const pthread_barrierattr_t *attributes, unsigned count),
    (barrier, attributes, count))
OLD(int, pthread_barrier_destroy, (pthread_barrier_t * barrier), (barrier))
OLD(int, pthread_barrier_wait, (pthread_barrier_t * barrier), (barrier))

/* The start of a program: the old version has it call its constructors itself. The linker's --wrap
 * leads the start file's reference here. */
typedef int main_function(int argc, char **argv, char **environment);
typedef void init_function(int argc, char **argv, char **environment);
typedef void fini_function(void);

extern int old_start(main_function *run, int argc, char **argv, init_function *init,
                     fini_function *fini, fini_function *loader_fini, void *stack_end);
__asm__(".symver old_start,__libc_start_main@" OLD_VERSION);

extern init_function *const __init_array_start[] __attribute__((visibility("hidden")));
extern init_function *const __init_array_end[] __attribute__((visibility("hidden")));
extern void _init(void);

static void call_constructors(int argc, char **argv, char **environment)
{
    _init();
    for (init_function *const *call = __init_array_start; call < __init_array_end; call++)
        (*call)(argc, argv, environment);
}

int __wrap___libc_start_main(main_function *run, int argc, char **argv, init_function *init,
                             fini_function *fini, fini_function *loader_fini, void *stack_end);
int __wrap___libc_start_main(main_function *run, int argc, char **argv, init_function *init,
                             fini_function *fini, fini_function *loader_fini, void *stack_end)
{
    (void)init;
    return old_start(run, argc, argv, call_constructors, fini, loader_fini, stack_end);
}
#endif
#endif
