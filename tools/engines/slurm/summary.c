/* The ledger belongs to the user, who may cut it short while it is read: a child reads it, which
 * SIGBUS may end. */
#include "tools/engines/slurm/summary.h"

#include "core/io/text.h"
#include "core/ledger/ledger.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_BYTES 1024
#define COMMENT_BYTES 4096
#define READ_SECONDS 5
#define COMMENT_TRIES 4 /* other nodes of the job write the comment too */

struct text {
    char text[TEXT_BYTES];
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void append(struct text *to, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const int length = vsnprintf(to->text + to->used, sizeof(to->text) - to->used, format, list);
    va_end(list);
    if (length > 0 && (size_t)length < sizeof(to->text) - to->used)
        to->used += (size_t)length;
    else
        to->text[to->used] = '\0';
}

static void append_bytes(struct text *to, uint64_t bytes, bool is_exact)
{
    if (is_exact)
        append(to, "%" PRIu64, bytes);
    else
        append(to, "%s", GC_TEXT_SIZE(bytes));
}

/* ---- from the ledger ---- */

/* `step`: what stands behind "job-JOB" in the group's name; "" or ".STEP". */
static void describe(struct text *to, const char *step, uint32_t device, uint32_t device_count,
                     const struct gc_ledger_group *group, uint64_t refused, bool is_exact)
{
    if (group->peaks[device] == 0 && refused == 0)
        return;
    append(to, "%s", to->used > 0 ? ", " : "");
    if (step[0] != '\0')
        append(to, "step %.16s ", step + 1);
    if (device_count > 1)
        append(to, "device %" PRIu32 " ", device);
    append(to, "peak ");
    append_bytes(to, group->peaks[device], is_exact);
    if (group->limits[device] != UINT64_MAX) {
        append(to, " of ");
        append_bytes(to, group->limits[device], is_exact);
    }
    append(to, ", %" PRIu64 " refused", refused);
}

static void read_ledger(const struct job *job, bool is_exact, struct text *to)
{
    struct gc_ledger ledger;
    struct gc_ledger_group group;
    struct gc_ledger_device device;
    struct gc_ledger_totals totals[GC_LEDGER_DEVICES];
    struct gc_ledger_turn_totals turns;
    char path[JOB_PATH_BYTES], name[64], reason[GC_LEDGER_REASON_BYTES];
    uint32_t device_count = 0;
    if (gc_ledger_open_of(job_ledger(job, path), job->uid, &ledger, reason) != GC_OK)
        return;
    while (gc_ledger_read_device(&ledger, device_count, &device))
        device_count++;
    snprintf(name, sizeof(name), "job-%" PRIu32, job->id);
    const size_t length = strlen(name);
    for (uint32_t i = 0; i < GC_LEDGER_GROUPS; i++) {
        if (!gc_ledger_read_group(&ledger, i, &group) || strncmp(group.name, name, length) != 0)
            continue;
        const char *step = group.name + length;
        if (step[0] != '\0' && (step[0] != '.' || step[1 + strspn(step + 1, "0123456789")] != '\0'))
            continue;
        gc_ledger_read_totals(&ledger, i, totals, &turns);
        for (uint32_t at = 0; at < device_count; at++)
            describe(to, step, at, device_count, &group, totals[at].oom_count, is_exact);
    }
    gc_ledger_close(&ledger);
}

static void read_in_child(const struct job *job, bool is_exact, int fd)
{
    struct text text = {.used = 0};
    sigset_t alarms;
    signal(SIGBUS, SIG_DFL);
    signal(SIGALRM, SIG_DFL);
    /* slurmd's threads block it. */
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &alarms, NULL);
    prctl(PR_SET_DUMPABLE, 0);
    alarm(READ_SECONDS);
    read_ledger(job, is_exact, &text);
    ssize_t written = write(fd, text.text, text.used);
    _exit(written == (ssize_t)text.used ? 0 : 1);
}

/* False: there is nothing to tell. */
static bool read_use(const struct job *job, bool is_exact, char text[TEXT_BYTES])
{
    int ends[2], status = 0;
    ssize_t length = 0, got;
    if (pipe(ends) != 0)
        return false;
    const pid_t child = fork();
    if (child == 0)
        read_in_child(job, is_exact, ends[1]);
    close(ends[1]);
    while (child > 0 && length < TEXT_BYTES - 1) {
        got = read(ends[0], text + length, TEXT_BYTES - 1 - (size_t)length);
        if (got > 0)
            length += got;
        else if (got == 0 || errno != EINTR)
            break;
    }
    close(ends[0]);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    text[length] = '\0';
    return length > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- to Slurm ---- */

/* The comment without this node's part, which begins with `mark`, and with `part` at the end. */
static void compose(const char *old, const char *mark, const char *part,
                    char comment[COMMENT_BYTES])
{
    size_t used = 0;
    comment[0] = '\0';
    for (const char *item = old; item != NULL && *item != '\0';) {
        const char *end = strstr(item, "; ");
        const size_t length = end != NULL ? (size_t)(end - item) : strlen(item);
        if (strncmp(item, mark, strlen(mark)) != 0 &&
            used + length + TEXT_BYTES + 200 < COMMENT_BYTES)
            used += (size_t)snprintf(comment + used, COMMENT_BYTES - used, "%s%.*s",
                                     used > 0 ? "; " : "", (int)length, item);
        item = end != NULL ? end + 2 : NULL;
    }
    snprintf(comment + used, COMMENT_BYTES - used, "%s%s%s", used > 0 ? "; " : "", mark, part);
}

/* True if the comment now has the part, or cannot be changed. */
static bool has_comment(const struct job *job, const char *mark, const char *part)
{
    job_info_msg_t *jobs = NULL;
    char comment[COMMENT_BYTES], whole[TEXT_BYTES + 200];
    const char *old = NULL;
    bool is_done = true;
    if (slurm_load_job(&jobs, job->id, 0) != SLURM_SUCCESS)
        return true;
    for (uint32_t i = 0; i < jobs->record_count; i++)
        if (jobs->job_array[i].job_id == job->id)
            old = jobs->job_array[i].comment;
    snprintf(whole, sizeof(whole), "%s%s", mark, part);
    if (old == NULL || strstr(old, whole) == NULL) {
        job_desc_msg_t change;
        compose(old, mark, part, comment);
        slurm_init_job_desc_msg(&change);
        change.job_id = job->id;
        change.comment = comment;
        is_done = slurm_update_job(&change) != SLURM_SUCCESS;
    }
    slurm_free_job_info_msg(jobs);
    return is_done;
}

void summary_comment(const struct job *job)
{
    char use[TEXT_BYTES], mark[128];
    const char *node_name = getenv("SLURMD_NODENAME");
    if (!read_use(job, false, use))
        return;
    snprintf(mark, sizeof(mark), "gpucache: %.64s: ", node_name != NULL ? node_name : "node");
    for (int i = 0; i < COMMENT_TRIES && !has_comment(job, mark, use); i++) {
    }
}

void summary_log(const struct job *job)
{
    char use[TEXT_BYTES];
    if (read_use(job, true, use))
        slurm_info("gpucache: job %" PRIu32 ", user %lu: %s", job->id, (unsigned long)job->uid,
                   use);
}
