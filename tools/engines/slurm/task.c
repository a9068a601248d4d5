#include "tools/engines/slurm/task.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PRELOAD_BYTES 65536

static bool set(spank_t spank, const char *name, const char *value,
                char reason[ARGUMENTS_REASON_BYTES])
{
    if (spank_setenv(spank, name, value, 1) == ESPANK_SUCCESS)
        return true;
    snprintf(reason, ARGUMENTS_REASON_BYTES, "%.64s cannot be set in the task", name);
    return false;
}

/* Only where the user has set nothing. */
static void suggest(spank_t spank, const char *name, const char *value)
{
    (void)spank_setenv(spank, name, value, 0);
}

/* The user's list without the library. */
static void append_others(char *to, size_t size, const char *list, const char *library)
{
    size_t used = strlen(to);
    while (*list != '\0') {
        list += strspn(list, ": ");
        const size_t length = strcspn(list, ": ");
        const bool is_library = length == strlen(library) && memcmp(list, library, length) == 0;
        if (length > 0 && !is_library && used + length + 2 <= size) {
            to[used++] = ':';
            memcpy(to + used, list, length);
            used += length;
            to[used] = '\0';
        }
        list += length;
    }
}

/* The library first: it wraps what the user's own libraries call. */
static bool preload(spank_t spank, const char *library, char reason[ARGUMENTS_REASON_BYTES])
{
    bool is_set = false;
    char *theirs = malloc(PRELOAD_BYTES);
    char *ours = malloc(2 * PRELOAD_BYTES);
    if (theirs == NULL || ours == NULL) {
        snprintf(reason, ARGUMENTS_REASON_BYTES, "LD_PRELOAD: no memory");
        goto done;
    }
    const spank_err_t status = spank_getenv(spank, "LD_PRELOAD", theirs, PRELOAD_BYTES);
    if (status == ESPANK_NOSPACE) {
        snprintf(reason, ARGUMENTS_REASON_BYTES, "LD_PRELOAD is longer than %d bytes",
                 PRELOAD_BYTES);
        goto done;
    }
    snprintf(ours, PRELOAD_BYTES, "%s", library);
    if (status == ESPANK_SUCCESS)
        append_others(ours, 2 * PRELOAD_BYTES, theirs, library);
    is_set = set(spank, "LD_PRELOAD", ours, reason);
done:
    free(theirs);
    free(ours);
    return is_set;
}

/* GPUCACHE_MODE=off is no limit, in the environment and in a file of GPUCACHE_CONFIG. */
static bool set_mode(spank_t spank, char reason[ARGUMENTS_REASON_BYTES])
{
    char mode[16] = "";
    const spank_err_t status = spank_getenv(spank, "GPUCACHE_MODE", mode, sizeof(mode));
    if (status == ESPANK_SUCCESS && (strcmp(mode, "cache") == 0 || strcmp(mode, "track") == 0))
        return true;
    if (status != ESPANK_ENV_NOEXIST)
        slurm_spank_log("gpucache: GPUCACHE_MODE=%s: not in a job with a limit; the mode is cache",
                        mode);
    return set(spank, "GPUCACHE_MODE", "cache", reason);
}

/* The variables that the site sets for each task. */
static bool set_all(spank_t spank, const struct arguments *arguments,
                    char reason[ARGUMENTS_REASON_BYTES])
{
    for (size_t i = 0; i < arguments->set_count; i++) {
        const char *equals = strchr(arguments->sets[i], '=');
        char name[80];
        snprintf(name, sizeof(name), "%.*s", (int)(equals - arguments->sets[i]),
                 arguments->sets[i]);
        if (!set(spank, name, equals + 1, reason))
            return false;
    }
    return true;
}

bool task_set_environment(spank_t spank, const struct job *job, const char *group,
                          const char *limit, char reason[ARGUMENTS_REASON_BYTES])
{
    const struct arguments *arguments = job->arguments;
    char ledger[JOB_PATH_BYTES], report[JOB_PATH_BYTES + 16], tenant[32];
    uint32_t task = 0;
    if (access(arguments->library, R_OK) != 0) {
        snprintf(reason, ARGUMENTS_REASON_BYTES, "library=%.400s: %s", arguments->library,
                 strerror(errno));
        return false;
    }
    (void)spank_get_item(spank, S_TASK_GLOBAL_ID, &task);
    job_ledger(job, ledger);
    snprintf(report, sizeof(report), "%s/report-%%p.json", ledger);
    snprintf(tenant, sizeof(tenant), "task-%u", task);
    suggest(spank, "GPUCACHE_TENANT", tenant);
    suggest(spank, "GPUCACHE_REPORT", report);
    return preload(spank, arguments->library, reason) && set_mode(spank, reason) &&
           set_all(spank, arguments, reason) && set(spank, "GPUCACHE_LEDGER", ledger, reason) &&
           set(spank, "GPUCACHE_LEDGER_REQUIRED", "1", reason) &&
           set(spank, "GPUCACHE_GROUP", group, reason) &&
           set(spank, "GPUCACHE_GROUP_LIMIT", limit, reason);
}
