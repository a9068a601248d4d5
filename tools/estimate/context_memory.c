/* With a context each, two processes see what the device has free: what the second sees less is its
 * context, since the first one's was there before. One process would not do: its contexts share a
 * part of what they take. Only the driver's library is asked, and only where it is there. */
#include "tools/estimate/context_memory.h"
#include "tools/base/tool.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- in a process of its own: CUDA does not survive a fork ---- */

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

/* What the first device has free beside a context of ours; 0: there is none. */
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

/* ---- the two of them ---- */

struct holder {
    pid_t process;
    int says;  /* what it has free */
    int until; /* it keeps its context until this is closed */
};

static void hold(int says, int until)
{
    char nothing;
    const uint64_t bytes = free_with_context();
    if (write(says, &bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes))
        (void)!read(until, &nothing, 1);
    _exit(0);
}

static bool begin(struct holder *holder)
{
    int says[2];
    int until[2];
    if (pipe(says) != 0)
        return false;
    if (pipe(until) != 0)
        goto fail_until;
    holder->process = fork();
    if (holder->process < 0)
        goto fail_fork;
    if (holder->process == 0) {
        close(says[0]);
        close(until[1]);
        hold(says[1], until[0]);
    }
    close(says[1]);
    close(until[0]);
    holder->says = says[0];
    holder->until = until[1];
    return true;
fail_fork:
    close(until[0]);
    close(until[1]);
fail_until:
    close(says[0]);
    close(says[1]);
    return false;
}

static uint64_t ask(const struct holder *holder)
{
    uint64_t bytes;
    return read(holder->says, &bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes) ? bytes : 0;
}

static void end(const struct holder *holder)
{
    close(holder->until);
    close(holder->says);
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
        before = ask(&first);
        /* The second has the first one's pipe too, so it ends before it. */
        if (before > 0 && begin(&second)) {
            after = ask(&second);
            end(&second);
        }
        end(&first);
    }
    if (after == 0)
        return tool_fail(command,
                         "--context-memory measured: no CUDA device, or no room on it for two "
                         "contexts");
    if (after >= before)
        return tool_fail(command,
                         "--context-memory measured: the device had no less free with a context "
                         "more: others give memory back, or it is not told across processes");
    *bytes = before - after;
    return TOOL_DONE;
}
