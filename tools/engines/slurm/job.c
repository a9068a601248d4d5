#include "tools/engines/slurm/job.h"

#include "core/config/size.h"
#include "core/io/text.h"
#include "tools/engines/slurm/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- paths ---- */

/* FOLDER/jobs/JOB and an ending. */
static const char *path_of(const struct job *job, const char *ending, char path[JOB_PATH_BYTES])
{
    snprintf(path, JOB_PATH_BYTES, "%.4000s/jobs/%" PRIu32 "%s", job->arguments->node, job->id,
             ending);
    return path;
}

const char *job_ledger(const struct job *job, char path[JOB_PATH_BYTES])
{
    char ending[32];
    snprintf(ending, sizeof(ending), "/%lu", (unsigned long)job->uid);
    return path_of(job, ending, path);
}

/* ---- what the job may have ---- */

__attribute__((format(printf, 2, 3))) static void refuse(struct job_record *record,
                                                         const char *format, ...)
{
    va_list list;
    record->state = JOB_REFUSED;
    va_start(list, format);
    vsnprintf(record->value, sizeof(record->value), format, list);
    va_end(list);
}

static void set_limit(struct job_record *record, const char *value)
{
    if (gc_text_copy(record->value, sizeof(record->value), value, strlen(value)))
        record->state = JOB_LIMITED;
    else
        refuse(record, "--gpu-mem: the value is too long");
}

/* A job with shards has their memory; --gpu-mem may ask for less. */
static void decide_by_shards(const struct arguments *arguments, uint64_t count, const char *option,
                             struct job_record *record)
{
    uint64_t bytes, wanted;
    char text[24];
    if (__builtin_mul_overflow(count, arguments->shard_bytes, &bytes)) {
        refuse(record, "%" PRIu64 " shards of %s exceed 64 bits", count,
               GC_TEXT_SIZE(arguments->shard_bytes));
        return;
    }
    if (option != NULL && gc_size_parse(option, &wanted) != GC_OK) {
        refuse(record, "--gpu-mem=%s: a job with shards takes one size in bytes", option);
    } else if (option != NULL && wanted > bytes) {
        refuse(record, "--gpu-mem=%s: the job's %" PRIu64 " shards on this node are %s", option,
               count, GC_TEXT_SIZE(bytes));
    } else {
        snprintf(text, sizeof(text), "%" PRIu64, bytes);
        set_limit(record, option != NULL ? option : text);
    }
}

void job_decide(const struct job *job, const char *option, struct job_record *record)
{
    const struct arguments *arguments = job->arguments;
    const char *node_name = getenv("SLURMD_NODENAME");
    struct shards shards = {.count = 0};
    char reason[ARGUMENTS_REASON_BYTES];
    *record = (struct job_record){.state = JOB_FREE};
    if (option != NULL && !arguments_check_option(arguments, option, reason))
        refuse(record, "%s", reason);
    else if (arguments->shard_bytes > 0 &&
             (node_name == NULL || !shards_of_job(job->id, node_name, &shards)))
        refuse(record, "slurmctld did not tell how many shards the job has");
    else if (shards.device_count > 1)
        refuse(record,
               "the job's %" PRIu64 " shards are on %" PRIu32
               " devices, and a limit is for each; accepted: shards of one device",
               shards.count, shards.device_count);
    else if (shards.count > 0)
        decide_by_shards(arguments, shards.count, option, record);
    else if (option != NULL)
        set_limit(record, option);
    else if (arguments->default_limit != NULL)
        set_limit(record, arguments->default_limit);
    else if (arguments->is_required)
        refuse(record, "--gpu-mem is required here");
}

/* ---- the scope ---- */

/* A folder of root's, made if it is missing, in which nobody else can change what is root's. */
static bool has_folder(const char *path, char reason[ARGUMENTS_REASON_BYTES])
{
    struct stat facts;
    const bool is_made = mkdir(path, 0755) == 0;
    const char *wrong = NULL;
    if ((is_made ? chmod(path, 0755) != 0 : errno != EEXIST) || lstat(path, &facts) != 0)
        wrong = strerror(errno);
    else if (!S_ISDIR(facts.st_mode) || facts.st_uid != geteuid() ||
             ((facts.st_mode & 022) != 0 && (facts.st_mode & S_ISVTX) == 0))
        wrong = "it is not root's folder, closed to others or sticky";
    if (wrong != NULL)
        snprintf(reason, ARGUMENTS_REASON_BYTES, "%.400s: %s", path, wrong);
    return wrong == NULL;
}

/* By rm, whose walk is safe in a tree that its owner changes meanwhile. */
static void remove_tree(char *path)
{
    char rm[] = "/bin/rm", options[] = "-rf", file_system[] = "--one-file-system", end[] = "--";
    char *const argv[] = {rm, options, file_system, end, path, NULL};
    char *const environment[] = {NULL};
    pid_t pid;
    int status;
    if (posix_spawn(&pid, rm, NULL, NULL, argv, environment) != 0)
        return;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
}

/* The user's folder is there before others may write into the scope. The prolog may come twice: an
 * existing folder stays, since a new one would be another ledger beside that of the tasks. */
static bool make_scope(const struct job *job, char reason[ARGUMENTS_REASON_BYTES])
{
    char path[JOB_PATH_BYTES], ledger[JOB_PATH_BYTES];
    struct stat facts;
    path_of(job, "", path);
    job_ledger(job, ledger);
    if (!has_folder(path, reason))
        return false;
    const bool is_there = lstat(ledger, &facts) == 0;
    if (is_there && S_ISDIR(facts.st_mode) && facts.st_uid == job->uid)
        return true;
    if (is_there)
        remove_tree(ledger);
    if (mkdir(ledger, 0700) == 0 && chmod(ledger, 0700) == 0 &&
        lchown(ledger, job->uid, job->gid) == 0 && chmod(path, 01777) == 0)
        return true;
    snprintf(reason, ARGUMENTS_REASON_BYTES, "%.400s: %s", ledger, strerror(errno));
    return false;
}

/* A new file is complete before it has its name. */
static bool write_file(const char *path, const char *text, char reason[ARGUMENTS_REASON_BYTES])
{
    char temporary[JOB_PATH_BYTES + 8];
    const size_t length = strlen(text);
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    bool is_done = fd >= 0 && fchmod(fd, 0644) == 0 && write(fd, text, length) == (ssize_t)length;
    if (fd >= 0)
        is_done = close(fd) == 0 && is_done;
    is_done = is_done && rename(temporary, path) == 0;
    if (!is_done)
        snprintf(reason, ARGUMENTS_REASON_BYTES, "%.400s: %s", path, strerror(errno));
    return is_done;
}

static bool write_record(const struct job *job, const struct job_record *record,
                         char reason[ARGUMENTS_REASON_BYTES])
{
    static const char *const words[] = {
        [JOB_LIMITED] = "limit ", [JOB_FREE] = "none", [JOB_REFUSED] = "refused "};
    char path[JOB_PATH_BYTES], text[JOB_VALUE_BYTES + 16];
    snprintf(text, sizeof(text), "job=%" PRIu32 "\n", job->id);
    if (!write_file(path_of(job, ".labels", path), text, reason))
        return false;
    snprintf(text, sizeof(text), "%s%s\n", words[record->state], record->value);
    return write_file(path_of(job, ".limit", path), text, reason);
}

bool job_begin(const struct job *job, const struct job_record *record,
               char reason[ARGUMENTS_REASON_BYTES])
{
    char path[JOB_PATH_BYTES];
    if (record->state == JOB_LIMITED && access(job->arguments->library, R_OK) != 0) {
        snprintf(reason, ARGUMENTS_REASON_BYTES, "library=%.400s: %s", job->arguments->library,
                 strerror(errno));
        return false;
    }
    snprintf(path, sizeof(path), "%.4000s/jobs", job->arguments->node);
    return has_folder(job->arguments->node, reason) && has_folder(path, reason) &&
           make_scope(job, reason) && write_record(job, record, reason);
}

void job_read(const struct job *job, struct job_record *record)
{
    char path[JOB_PATH_BYTES], text[JOB_VALUE_BYTES + 16];
    struct stat facts;
    *record = (struct job_record){.state = JOB_UNKNOWN};
    const int fd = open(path_of(job, ".limit", path), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    const bool is_roots = fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == 0;
    const ssize_t length = is_roots ? read(fd, text, sizeof(text) - 1) : -1;
    close(fd);
    if (length <= 0 || text[length - 1] != '\n')
        return;
    text[length - 1] = '\0';
    if (strcmp(text, "none") == 0)
        record->state = JOB_FREE;
    else if (strncmp(text, "limit ", 6) == 0)
        set_limit(record, text + 6);
    else if (strncmp(text, "refused ", 8) == 0)
        refuse(record, "%.*s", JOB_VALUE_BYTES - 1, text + 8);
}

void job_end(const struct job *job)
{
    char path[JOB_PATH_BYTES];
    path_of(job, "", path);
    remove_tree(path);
    unlink(path_of(job, ".limit", path));
    unlink(path_of(job, ".labels", path));
}
