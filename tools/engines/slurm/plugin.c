/* The SPANK plugin: `--gpu-mem` of srun, sbatch and salloc, and each job's limit on its nodes.
 *
 * srun, sbatch and salloc refuse a bad value. On the node the prolog decides the job's limit once
 * and records it (job.h); each task, the batch script's own included, takes it from the record.
 *
 * An error of the user ends the task, with a line on its stderr. Only an error of the node fails
 * the prolog: Slurm then drains the node. */
#include "tools/engines/slurm/summary.h"
#include "tools/engines/slurm/task.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT extern const char plugin_name[];
EXPORT extern const char plugin_type[];
EXPORT extern const unsigned int plugin_version;
EXPORT extern const unsigned int spank_plugin_version;
SPANK_PLUGIN(gpucache, 1)

/* The last --gpu-mem of this process: of the command line, or what the job was submitted with. */
static struct {
    char value[JOB_VALUE_BYTES];
    bool is_given;
    uint32_t exit_count; /* tasks of the step on this node that have ended */
} state;

static int take_option(int number, const char *value, int is_remote)
{
    char reason[ARGUMENTS_REASON_BYTES];
    (void)number;
    if (value == NULL || strlen(value) >= sizeof(state.value) ||
        (is_remote == 0 && !arguments_check_limit("--gpu-mem", value, reason))) {
        slurm_spank_log("gpucache: %s", value == NULL || strlen(value) >= sizeof(state.value)
                                            ? "--gpu-mem: the value is missing or too long"
                                            : reason);
        return -1;
    }
    snprintf(state.value, sizeof(state.value), "%s", value);
    state.is_given = true;
    return 0;
}

static char option_name[] = "gpu-mem", option_value[] = "SIZE",
            option_text[] = "device memory of the job on each node and device: 8G, 50%";
static struct spank_option option = {option_name, option_value, option_text, 1, 0, take_option};

/* False, with a line in the log and for the user. */
static bool read_arguments(int argc, char **argv, struct arguments *arguments)
{
    char reason[ARGUMENTS_REASON_BYTES];
    if (arguments_read(argc, argv, arguments, reason))
        return true;
    slurm_error("gpucache: %s", reason);
    return false;
}

static bool read_job(spank_t spank, const struct arguments *arguments, struct job *job)
{
    *job = (struct job){.arguments = arguments};
    if (spank_get_item(spank, S_JOB_ID, &job->id) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_UID, &job->uid) != ESPANK_SUCCESS) {
        slurm_error("gpucache: Slurm does not tell the job's number and user");
        return false;
    }
    if (spank_get_item(spank, S_JOB_GID, &job->gid) != ESPANK_SUCCESS)
        job->gid = (gid_t)-1;
    return true;
}

EXPORT int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    struct arguments arguments;
    if (!read_arguments(argc, argv, &arguments))
        return -1;
    if (spank_context() == S_CTX_SLURMD)
        return 0;
    return spank_option_register(spank, &option) == ESPANK_SUCCESS ? 0 : -1;
}

/* In srun, sbatch and salloc; the steps of a running job have what the job has. */
EXPORT int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
    const spank_context_t context = spank_context();
    char reason[ARGUMENTS_REASON_BYTES];
    struct arguments arguments;
    (void)spank;
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR)
        return 0;
    if (!read_arguments(argc, argv, &arguments))
        return -1;
    if (state.is_given) {
        if (arguments_check_option(&arguments, state.value, reason))
            return 0;
        slurm_spank_log("gpucache: %s", reason);
        return -1;
    }
    if (!arguments.is_required || arguments.default_limit != NULL || arguments.shard_bytes > 0 ||
        getenv("SLURM_JOB_ID") != NULL)
        return 0;
    slurm_spank_log("gpucache: --gpu-mem=SIZE is required here: 8G, or 50%% of a device");
    return -1;
}

/* ---- on the node ---- */

EXPORT int slurm_spank_job_prolog(spank_t spank, int argc, char **argv)
{
    char reason[ARGUMENTS_REASON_BYTES], *value = NULL;
    struct job_record record;
    struct arguments arguments;
    struct job job;
    if (!read_arguments(argc, argv, &arguments) || !read_job(spank, &arguments, &job))
        return -1;
    if (spank_option_getopt(spank, &option, &value) != ESPANK_SUCCESS)
        value = NULL;
    job_decide(&job, value, &record);
    if (job_begin(&job, &record, reason))
        return 0;
    slurm_error("gpucache: job %" PRIu32 ": %s", job.id, reason);
    return -1;
}

static int refuse(const char *reason)
{
    slurm_error("gpucache: %s", reason);
    return -1;
}

/* A job that began before the plugin was there has no record. */
static int start_without_record(const struct job *job)
{
    const struct arguments *arguments = job->arguments;
    if (!state.is_given && !arguments->is_required && arguments->default_limit == NULL &&
        arguments->shard_bytes == 0)
        return 0;
    return refuse("the job's limit is not known: the prolog of this plugin did not run");
}

/* A step may name a limit only where its job has none. The limit is the step's own then. */
static int start_step(spank_t spank, const struct job *job, struct job_record *record)
{
    char reason[ARGUMENTS_REASON_BYTES], group[64];
    uint32_t step = 0;
    snprintf(group, sizeof(group), "job-%" PRIu32, job->id);
    if (record->state == JOB_LIMITED && state.is_given && strcmp(state.value, record->value) != 0) {
        snprintf(reason, sizeof(reason),
                 "--gpu-mem=%.64s: the limit of job %" PRIu32
                 " is %.128s, for its steps together; it is set when the job is submitted",
                 state.value, job->id, record->value);
        return refuse(reason);
    }
    if (record->state == JOB_FREE && !state.is_given)
        return 0;
    if (record->state == JOB_FREE) {
        if (!arguments_check_limit("--gpu-mem", state.value, reason))
            return refuse(reason);
        (void)spank_get_item(spank, S_JOB_STEPID, &step);
        snprintf(group, sizeof(group), "job-%" PRIu32 ".%" PRIu32, job->id, step);
        snprintf(record->value, sizeof(record->value), "%s", state.value);
    }
    return task_set_environment(spank, job, group, record->value, reason) ? 0 : refuse(reason);
}

EXPORT int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
    struct job_record record;
    struct arguments arguments;
    struct job job;
    if (!read_arguments(argc, argv, &arguments) || !read_job(spank, &arguments, &job))
        return -1;
    job_read(&job, &record);
    if (record.state == JOB_UNKNOWN)
        return start_without_record(&job);
    if (record.state == JOB_REFUSED)
        return refuse(record.value);
    return start_step(spank, &job, &record);
}

/* A comment can be written while the job runs only: after the last task of each step. */
EXPORT int slurm_spank_task_exit(spank_t spank, int argc, char **argv)
{
    struct arguments arguments;
    struct job job;
    uint32_t task_count = 0;
    (void)spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &task_count);
    if (++state.exit_count == task_count && read_arguments(argc, argv, &arguments) &&
        arguments.has_comment && read_job(spank, &arguments, &job))
        summary_comment(&job);
    return 0;
}

EXPORT int slurm_spank_job_epilog(spank_t spank, int argc, char **argv)
{
    struct arguments arguments;
    struct job job;
    if (!read_arguments(argc, argv, &arguments) || !read_job(spank, &arguments, &job))
        return -1;
    summary_log(&job);
    job_end(&job);
    return 0;
}
