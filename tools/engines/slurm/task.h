/* The environment of a task of a job with a limit. */
#ifndef GC_SLURM_TASK_H
#define GC_SLURM_TASK_H

#include "tools/engines/slurm/job.h"

#include <slurm/spank.h>

/* In the task, as the user: preloads the library, makes the task a member of the group, and takes
 * back what the user set to be without the limit. False, with a reason: the task must not run. */
bool task_set_environment(spank_t spank, const struct job *job, const char *group,
                          const char *limit, char reason[ARGUMENTS_REASON_BYTES]);

#endif
