#!/bin/sh
# Epilog in slurm.conf: root, on the node, when the job's last process is gone.
LEDGERS=${GPUCACHE_LEDGERS:-/run/gpucache}
PATH=/usr/sbin:/usr/bin:/sbin:/bin

rm -rf "${LEDGERS:?}/${SLURM_JOB_ID:?}"
