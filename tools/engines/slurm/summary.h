/* What a job used on this node: its groups' peaks and refusals, from its ledger. */
#ifndef GC_SLURM_SUMMARY_H
#define GC_SLURM_SUMMARY_H

#include "tools/engines/slurm/job.h"

/* Writes `gpucache: NODE: peak 3.0 GiB of 8.0 GiB, 2 refused` into the job's comment, in the place
 * of an earlier one of this node and behind all else that is in it. For a running job, as root. */
void summary_comment(const struct job *job);
/* Writes the same into slurmd's log, with the exact numbers. */
void summary_log(const struct job *job);

#endif
