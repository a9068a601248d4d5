#!/bin/sh
# TaskProlog in slurm.conf: the job's user, before each task. Its lines `export NAME=value` set the task's environment.
# A shard of the node's gres.conf is taken for 1 GiB. A job without shards has its GPUs to itself: no limit, but a report.
LIBRARY=${GPUCACHE_LIBRARY:-/usr/local/lib/libgpucache.so}
LEDGERS=${GPUCACHE_LEDGERS:-/run/gpucache}

echo "export LD_PRELOAD=$LIBRARY${LD_PRELOAD:+:$LD_PRELOAD}"
echo "export GPUCACHE_LEDGER=$LEDGERS/$SLURM_JOB_ID"
echo "export GPUCACHE_GROUP=job-$SLURM_JOB_ID"
echo "export GPUCACHE_TENANT=task-${SLURM_PROCID:-0}"
[ -z "${SLURM_SHARDS_ON_NODE:-}" ] || echo "export GPUCACHE_GROUP_LIMIT=${SLURM_SHARDS_ON_NODE}GiB"
echo "export GPUCACHE_REPORT=gpucache-$SLURM_JOB_ID-%h-%p.json"
