#!/bin/sh
# Prolog in slurm.conf: root, on the node, before a job's first step. A status other than 0 drains the node, so that no job
# runs there without its limit.
LIBRARY=${GPUCACHE_LIBRARY:-/usr/local/lib/libgpucache.so}
LEDGERS=${GPUCACHE_LEDGERS:-/run/gpucache}
PATH=/usr/sbin:/usr/bin:/sbin:/bin

[ -r "$LIBRARY" ] || { echo "no $LIBRARY" >&2; exit 1; }
install -d -m 0755 "$LEDGERS" || exit 1
# The job's own ledger: of its user, closed to all others.
rm -rf "${LEDGERS:?}/$SLURM_JOB_ID"
install -d -m 0700 -o "$SLURM_JOB_UID" "$LEDGERS/$SLURM_JOB_ID"
