/* Launchers of parallel jobs tell each task the number of tasks and its own by variables. This
 * process's job are the processes of its user whose variables have the same number of tasks. A task
 * is under the library if a process with its number is: wrappers of a task have its variables, too.
 *
 * Tasks start together, long before most use CUDA; one that starts later goes unseen. */
#define _GNU_SOURCE
#include "shim/driver/tasks.h"

#include "core/base/host_mem.h"
#include "core/io/process.h"
#include "core/io/writer.h"
#include "shim/shim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libgpucache"
#define TASKS_MAX 4096
#define ENVIRONMENT_BYTES (128 << 10)

/* torchrun; Open MPI; MPICH, Intel MPI and others; Slurm. */
static const struct launcher {
    const char *count;
    const char *number;
} launchers[] = {
    {"WORLD_SIZE", "RANK"},
    {"WORLD_SIZE", "LOCAL_RANK"},
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"PMI_SIZE", "PMI_RANK"},
    {"SLURM_NTASKS", "SLURM_PROCID"},
};

struct search {
    const struct launcher *launcher;
    const char *count; /* the variable's value here */
    char *environment;
    int pids[TASKS_MAX]; /* of a task's process without the library; 0: none was seen */
    bool is_covered[TASKS_MAX];
};

/* The value of a variable in a block of NAME=VALUE strings; NULL: it is not there. */
static const char *find(const char *environment, size_t bytes, const char *name)
{
    const size_t length = strlen(name);

    for (size_t at = 0; at < bytes; at += strlen(environment + at) + 1)
        if (strncmp(environment + at, name, length) == 0 && environment[at + length] == '=')
            return environment + at + length + 1;
    return NULL;
}

static size_t read_environment(const char *pid, char *environment)
{
    char path[64];
    size_t used = 0;
    ssize_t count;

    snprintf(path, sizeof(path), "/proc/%.20s/environ", pid);
    const int fd = gc_writer_raise_fd(open(path, O_RDONLY | O_CLOEXEC));
    if (fd < 0)
        return 0; /* another user's, or it has ended */
    while (used < ENVIRONMENT_BYTES - 1 &&
           (count = read(fd, environment + used, ENVIRONMENT_BYTES - 1 - used)) > 0)
        used += (size_t)count;
    close(fd);
    environment[used] = '\0';
    return used;
}

static bool visit(void *argument, const char *name)
{
    struct search *search = argument;

    if (name[0] < '1' || name[0] > '9')
        return true;
    const size_t bytes = read_environment(name, search->environment);
    const char *count = find(search->environment, bytes, search->launcher->count);
    const char *number = find(search->environment, bytes, search->launcher->number);
    const char *preload = find(search->environment, bytes, "LD_PRELOAD");
    if (count == NULL || number == NULL || strcmp(count, search->count) != 0)
        return true;
    const unsigned long task = strtoul(number, NULL, 10);
    if (task >= TASKS_MAX)
        return true;
    if (preload != NULL && strstr(preload, LIBRARY) != NULL)
        search->is_covered[task] = true;
    else
        search->pids[task] = atoi(name);
    return true;
}

static const struct launcher *find_launcher(void)
{
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        const char *count = getenv(launchers[i].count);
        if (count != NULL && getenv(launchers[i].number) != NULL && atoi(count) > 1)
            return &launchers[i];
    }
    return NULL;
}

static bool search_tasks(struct search *search, char *text, size_t bytes)
{
    const int folder = gc_writer_raise_fd(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));

    if (folder < 0)
        return false;
    gc_process_visit_names(folder, visit, search);
    close(folder);
    for (int i = 0; i < TASKS_MAX; i++) {
        if (search->pids[i] == 0 || search->is_covered[i])
            continue;
        snprintf(text, bytes, "task %d of the job, process %d, is not under the library", i,
                 search->pids[i]);
        return true;
    }
    return false;
}

bool gc_tasks_find_stray(char *text, size_t bytes)
{
    static atomic_bool is_none; /* once none was found, for all devices */
    const struct launcher *launcher = find_launcher();
    const char *preload = getenv("LD_PRELOAD");
    struct gc_host_mem host = {0};
    bool is_found = false;

    /* Preloaded otherwise, by /etc/ld.so.preload, the library is in every task. */
    if (launcher == NULL || preload == NULL || strstr(preload, LIBRARY) == NULL ||
        atomic_load_explicit(&is_none, memory_order_relaxed))
        return false;
    struct search *search = gc_host_mem_map(&host, sizeof(*search) + ENVIRONMENT_BYTES);
    if (search == NULL)
        return false;
    search->launcher = launcher;
    search->count = getenv(launcher->count);
    search->environment = (char *)(search + 1);
    is_found = search_tasks(search, text, bytes);
    atomic_store_explicit(&is_none, !is_found, memory_order_relaxed);
    gc_host_mem_unmap(&host, search, sizeof(*search) + ENVIRONMENT_BYTES);
    return is_found;
}
