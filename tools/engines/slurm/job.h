/* A job on a node, as the prolog leaves it for tasks and the epilog. All is in FOLDER/jobs, root's:
 *
 *   JOB.limit   the record, one line: `limit SIZE`, `none`, or `refused REASON`
 *   JOB.labels  `job=JOB`, for those who show the ledgers of the node
 *   JOB/        the scope, sticky, for ledgers of the job
 *   JOB/UID/    the ledger of the job's user, and the reports of its processes
 *
 * A user decides nothing on the node: a task takes its limit from the record, and has none without
 * a record. */
#ifndef GC_SLURM_JOB_H
#define GC_SLURM_JOB_H

#include "tools/engines/slurm/arguments.h"

#include <sys/types.h>

#define JOB_PATH_BYTES 4200
#define JOB_VALUE_BYTES 4096

struct job {
    const struct arguments *arguments;
    uint32_t id;
    uid_t uid;
    gid_t gid;
};

enum job_state { JOB_UNKNOWN, JOB_LIMITED, JOB_FREE, JOB_REFUSED };

struct job_record {
    enum job_state state;
    char value[JOB_VALUE_BYTES]; /* the limit, or the reason */
};

/* The folder of the job's ledger. */
const char *job_ledger(const struct job *job, char path[JOB_PATH_BYTES]);

/* What the job may have: by `option`, the value of --gpu-mem (NULL: not given), its shards and the
 * arguments. JOB_REFUSED where a user's error or a failed query leaves no answer. */
void job_decide(const struct job *job, const char *option, struct job_record *record);

/* In the prolog, as root: makes the scope and writes the record. False, with a reason, where the
 * node cannot hold a limit: no library, no folder. */
bool job_begin(const struct job *job, const struct job_record *record,
               char reason[ARGUMENTS_REASON_BYTES]);
/* JOB_UNKNOWN: there is no record, or it is not root's. */
void job_read(const struct job *job, struct job_record *record);
/* In the epilog, as root: removes all of the job. */
void job_end(const struct job *job);

#endif
