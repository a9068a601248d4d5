/* link: -l:libcuda.so.1 */
/* A program that lacks something: room in files, descriptors, its standard streams. usage: lacking
 * OWN
 *
 * OWN is a file of its own, opened before anything else, so at the lowest free descriptor. While
 * threads take and free memory another one writes to the standard streams, whatever they are. In
 * the end: no signal came, what it does on SIGXFSZ and SIGPIPE and what it blocks is as it was, and
 * OWN holds what the program wrote alone. Ends with 0 then; else it writes the error to OWN. */
#include "tests/preload/progs/program.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 400

static const char own_line[] = "a line of the program's own\n";
static const char stray_line[] = "the program's output\n";
static atomic_bool is_over;
static atomic_int signal_count;
static atomic_uint round_count;
static int own_fd;

static void note_signal(int number)
{
    (void)number;
    atomic_fetch_add(&signal_count, 1);
}

/* Where a stream is closed nothing may be found in its place. */
static void *write_out(void *unused)
{
    const struct timespec moment = {0, 50000};
    (void)unused;
    while (!atomic_load(&is_over)) {
        for (int fd = 0; fd < 3; fd++)
            if (fd != own_fd && fcntl(fd, F_GETFL) >= 0 && write(fd, stray_line, 1) < 0)
                nanosleep(&moment, NULL);
        nanosleep(&moment, NULL);
    }
    return NULL;
}

/* Where there is no memory goes on without: only one thread may end the program. */
static void *take_and_free(void *context)
{
    CUdeviceptr block;
    if (cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return NULL;
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (cuMemAlloc(&block, 4096 * (i % 60 + 1)) != CUDA_SUCCESS)
            continue;
        if (cuMemsetD8Async(block, 1, 4096, NULL) == CUDA_SUCCESS &&
            cuMemFree(block) == CUDA_SUCCESS)
            atomic_fetch_add(&round_count, 1);
    }
    return NULL;
}

static int fail(const char *what)
{
    (void)!write(own_fd, what, strlen(what));
    return EXIT_FAILURE;
}

static int check_signals(const struct sigaction *before, const sigset_t *mask_before)
{
    struct sigaction now;
    sigset_t mask;
    sigemptyset(&mask);
    sigaction(SIGXFSZ, NULL, &now);
    if (now.sa_handler != before->sa_handler || now.sa_flags != before->sa_flags)
        return fail("SIGXFSZ does another thing\n");
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int number = 1; number < SIGRTMAX; number++)
        if (sigismember(&mask, number) != sigismember(mask_before, number))
            return fail("other signals are blocked\n");
    return atomic_load(&signal_count) == 0 ? EXIT_SUCCESS : fail("a signal came\n");
}

/* Still at work when the process ends, its report written. */
static void start_writer(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, write_out, NULL) == 0)
        pthread_detach(thread);
}

int main(int argument_count, char **arguments)
{
    struct sigaction action = {.sa_handler = note_signal};
    pthread_t threads[THREADS];
    struct stat facts;
    sigset_t mask;
    if (argument_count < 2)
        return 2;
    own_fd = open(arguments[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (own_fd < 0 || write(own_fd, own_line, strlen(own_line)) < 0)
        return 3;
    sigaction(SIGXFSZ, &action, NULL);
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, NULL, &action);
    sigemptyset(&mask);
    sigprocmask(SIG_SETMASK, NULL, &mask);
    start_writer();
    CUcontext context = program_start();
    for (unsigned i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, take_and_free, context) != 0)
            return 4;
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(cuCtxSynchronize());
    if (fstat(own_fd, &facts) != 0 || facts.st_size != (off_t)strlen(own_line))
        return fail("the program's file is another\n");
    if (atomic_load(&round_count) != THREADS * ROUNDS)
        return EXIT_FAILURE;
    return check_signals(&action, &mask);
}
