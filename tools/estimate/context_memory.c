/* Measured by two processes with a context each: the second's context is the decrease of free
 * memory, since the first's was already there. One process is not enough, since its contexts share
 * a part of their memory. Only the driver's library is used, if it is installed. */
#include "tools/estimate/context_memory.h"
#include "tools/base/tool.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the child process: CUDA does not survive a fork ---- */

struct cuda {
    int (*init)(unsigned flags);
    int (*retain)(void **context, int device);
    int (*set_current)(void *context);
    int (*memory)(size_t *free_bytes, size_t *total_bytes);
};

static bool find(void *library, const char *name, void *function)
{
    *(void **)function = dlsym(library, name);
    return *(void **)function != NULL;
}

static bool load(struct cuda *cuda)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    return library != NULL && find(library, "cuInit", &cuda->init) &&
           find(library, "cuDevicePrimaryCtxRetain", &cuda->retain) &&
           find(library, "cuCtxSetCurrent", &cuda->set_current) &&
           find(library, "cuMemGetInfo_v2", &cuda->memory);
}

/* Free bytes of the first device while this process has a context; 0: no device. */
static uint64_t free_with_context(void)
{
    struct cuda cuda;
    void *context;
    size_t free_bytes;
    size_t total_bytes;
    if (!load(&cuda) || cuda.init(0) != 0 || cuda.retain(&context, 0) != 0 ||
        cuda.set_current(context) != 0 || cuda.memory(&free_bytes, &total_bytes) != 0)
        return 0;
    return free_bytes;
}

/* ---- the two processes ---- */

struct holder {
    pid_t process;
    int output;  /* reports the process's free bytes */
    int release; /* the process keeps its context until this is closed */
};

static void hold(int output, int release)
{
    char nothing;
    const uint64_t bytes = free_with_context();
    if (write(output, &bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes))
        (void)!read(release, &nothing, 1);
    _exit(0);
}

static bool begin(struct holder *holder)
{
    int output[2];
    int release[2];
    if (pipe(output) != 0)
        return false;
    if (pipe(release) != 0)
        goto fail_release;
    holder->process = fork();
    if (holder->process < 0)
        goto fail_fork;
    if (holder->process == 0) {
        close(output[0]);
        close(release[1]);
        hold(output[1], release[0]);
    }
    close(output[1]);
    close(release[0]);
    holder->output = output[0];
    holder->release = release[1];
    return true;
fail_fork:
    close(release[0]);
    close(release[1]);
fail_release:
    close(output[0]);
    close(output[1]);
    return false;
}

static uint64_t read_free(const struct holder *holder)
{
    uint64_t bytes;
    return read(holder->output, &bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes) ? bytes : 0;
}

static void end(const struct holder *holder)
{
    close(holder->release);
    close(holder->output);
    while (waitpid(holder->process, NULL, 0) < 0 && errno == EINTR)
        ;
}

int context_memory_measure(const struct tool_command *command, uint64_t *bytes)
{
    struct holder first;
    struct holder second;
    uint64_t before = 0;
    uint64_t after = 0;
    if (begin(&first)) {
        before = read_free(&first);
        /* The second process inherits the first one's pipe, so the second must end first. */
        if (before > 0 && begin(&second)) {
            after = read_free(&second);
            end(&second);
        }
        end(&first);
    }
    if (after == 0)
        return tool_fail(
            command, "--context-memory measured: no CUDA device, or not enough free memory for two "
                     "contexts");
    if (after >= before)
        return tool_fail(
            command,
            "--context-memory measured: a second context did not reduce the device's free memory: "
            "other processes release memory, or the driver does not report it across processes");
    *bytes = before - after;
    return TOOL_DONE;
}
