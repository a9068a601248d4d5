/* The shards (gres/shard) that a job has on this node. */
#ifndef GC_SLURM_SHARDS_H
#define GC_SLURM_SHARDS_H

#include <stdbool.h>
#include <stdint.h>

/* Asks slurmctld. False: it did not answer. 0 shards: the job has none here. The variable
 * SLURM_SHARDS_ON_NODE will not do: where a job has no shards the user's own value stays in it. */
struct shards {
    uint64_t count;
    uint32_t device_count; /* devices that they are on, where Slurm knows */
};
bool shards_of_job(uint32_t id, const char *node_name, struct shards *shards);

#endif
