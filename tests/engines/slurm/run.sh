#!/bin/bash
# The plugin for Slurm under Debian's slurmctld and slurmd, on one node and the simulated device, set up as docs/deploy.md
# says: `make test-slurm`, as root. Prints TAP.
# shellcheck disable=SC2016,SC2034,SC2154
. "$(dirname "$0")/../../lib.sh"
[ "$(id -u)" -eq 0 ] || { echo "make test-slurm runs Slurm's daemons: as root" >&2; exit 1; }
. "$(dirname "$0")/cluster.sh"
trap 'cluster_stop; [ $tap_failed -eq 0 ] || tail -n 60 "$C"/log/slurmd "$C"/log/slurmctld | sed "s/^/# /"; rm -rf "$TMP"' EXIT
GIB=$((1 << 30))
MIB=$((1 << 20))

# held_by_tasks COUNT FOLDER: true once so many tasks have filled their part and wait.
held_by_tasks() { [ "$(find "$2" -type f ! -name go | wc -l)" -eq "$1" ]; }
new_folder() { rm -rf "$C/hold" && mkdir -m 777 "$C/hold"; }
let_go() { touch "$C/hold/go"; }
# measure COUNT SRUN-ARGUMENTS…: starts tasks that fill up, prints the device's bytes in use, ends them.
measure() {
    local count=$1
    shift
    new_folder
    run "$@" > "$TMP/run" &
    wait_for held_by_tasks "$count" "$C/hold"
    device_used
    let_go
    wait $!
}
comment_of() { scontrol show job "$1" | sed -n 's/ *Comment=\(.*[^ ]\) *$/\1/p'; }
last_job() { scontrol -o show job | sed -n 's/^JobId=\([0-9]*\).*/\1/p' | sort -n | tail -n 1; }
logged() { sed -n "s/.*gpucache: job $1, user [0-9]*: //p" "$C/log/slurmd"; }
has_logged() { [ -n "$(logged "$1")" ]; }
is_clean() { [ -z "$(ls -A "$NODE/jobs")" ]; }
is_free() { [ "$(device_used)" = 0 ]; }

ok "munged, slurmctld and slurmd run, by the documented configuration" cluster_start || { cat "$C"/log/slurm*; exit 1; }

# ---- submission ----

for command in srun sbatch salloc; do
    like "$command --help has the option" "$($command --help)" '--gpu-mem=SIZE .*device memory'
    before=$(last_job)
    for size in 8Q 0 -1 150% '' 1GiB,2GiB 18446744073709551616 GPU-x=1G; do
        output=$(as_user $command --gpu-mem="$size" "$C/bin/script" 2>&1)
        is "$command refuses --gpu-mem=$size" $? 255
        [ -z "$size" ] || like "$command: and says what is accepted" "$output" "^gpucache: --gpu-mem=$size: accepted: a size .8GiB"
    done
    is "$command: no job came of it" "$(last_job)" "$before"
done

# ---- the limit ----

is "a limit is held to the byte" "$(measure 1 --gpu-mem=2GiB fill 1 100000 "$C/hold")" $((2 * GIB))
used=$(measure 1 --gpu-mem=2000000000 fill 1 100000 "$C/hold")
ok "a limit that is no multiple of a page is not passed" test "$used" -le 2000000000
ok "and used to the last whole page" test "$used" -gt $((2000000000 - 2 * MIB))
is "a percentage is one of the device" "$(measure 1 --gpu-mem=12.5% fill 1 100000 "$C/hold")" $((2 * GIB))
is "by device" "$(measure 1 --gpu-mem=1=1GiB,0=3GiB fill 1 100000 "$C/hold")" $((3 * GIB))
like "a refused request is told its job's limit" "$(as_user srun -Q --gpu-mem=1GiB fill 1 100000 2>&1)" \
    'gpucache: device 0: 1.0 MiB refused: limit 1.0 GiB of group job-[0-9]+ .GPUCACHE_GROUP_LIMIT'
# The second task starts once the first has its part.
is "two tasks share their job's limit" "$(measure 2 -O -n 2 --gpu-mem=2GiB sh -c 'if [ $SLURM_PROCID = 0 ]; then fill 1 1000 $0; else
    until [ "$(ls $0)" ]; do sleep 0.1; done; fill 1 100000 $0; fi' "$C/hold")" $((2 * GIB))
is "the second has the rest, both contexts apart" "$(sort "$TMP/run")" "pieces 1000
pieces $((2048 - 2 * 64 - 1000)) refused"
is "the device is shown as large as the limit" "$(run --gpu-mem=3GiB nvml_dlopen plain | awk '$3 == "nvml1" {print $4}')" $((3 * GIB))

# ---- batch scripts ----

new_folder
job=$(batch "fill 1 100000
srun fill 1 100000
fill 1 100 $C/hold & until [ -e $C/hold/\$! ]; do sleep 0.1; done; kill -9 \$!; wait
fill 1 100000" --gpu-mem=1GiB)
ok "a batch job ends" ended "$job"
is "its own programs and its steps have the limit, after a kill of a task too" "$(output_of "$job" | sort -u)" "pieces 100
pieces 960 refused"
new_folder
job=$(batch "fill 1 500 $C/hold & until [ \"\$(ls $C/hold)\" ]; do sleep 0.1; done; srun fill 1 100000; touch $C/hold/go; wait" --gpu-mem=1GiB)
ok "a batch job with a step beside its own program ends" ended "$job"
is "both are one group" "$(output_of "$job" | awk '{sum += $2} END {print sum}')" $((1024 - 2 * 64))
job=$(batch "#SBATCH --gpu-mem=1GiB
fill 1 100000")
ended "$job"
is "a script may ask by #SBATCH" "$(output_of "$job")" "pieces 960 refused"
is "an allocation's steps have the limit" "$(run_in --gpu-mem=1GiB srun -Q fill 1 100000)" "pieces 960 refused"

# ---- what a user may try ----

VARIABLES=(GPUCACHE_GROUP=mine GPUCACHE_GROUP_LIMIT=100GiB GPUCACHE_LEDGER="$USER_HOME/ledger" GPUCACHE_NODE="$USER_HOME"
    CUDA_DISABLE_CONTROL=true GPUCACHE_LIMIT=14GiB SLURM_SHARDS_ON_NODE=100)
is "other groups, ledgers and limits of the submitting shell do not count" "$(run --gpu-mem=1GiB fill 1 100000)" "pieces 960 refused"
echo GPUCACHE_MODE=off > "$C/off.conf"
VARIABLES=(GPUCACHE_CONFIG="$C/off.conf")
is "nor does a configuration file" "$(run --gpu-mem=1GiB fill 1 100000)" "pieces 960 refused"
VARIABLES=(GPUCACHE_MODE=off)
is "GPUCACHE_MODE=off is refused with a line" "$(run --gpu-mem=1GiB fill 1 100000)" \
    "gpucache: GPUCACHE_MODE=off: not in a job with a limit; the mode is cache
pieces 960 refused"
VARIABLES=(GPUCACHE_MODE=track)
is "GPUCACHE_MODE=track stays" "$(run --gpu-mem=1GiB sh -c 'echo $GPUCACHE_MODE; fill 1 100000')" "track
pieces 960 refused"
VARIABLES=(GPUCACHE_LIMIT=512MiB)
is "a lower limit of the user's own holds" "$(run --gpu-mem=1GiB fill 1 100000)" "pieces 448 refused"
VARIABLES=(LD_PRELOAD="$C/simcuda/libnvidia-ml.so.1 $C/lib/libgpucache.so:$C/simcuda/libcuda.so.1")
is "the user's preloaded libraries stay, behind ours" "$(run --gpu-mem=1GiB sh -c 'echo $LD_PRELOAD')" \
    "$C/lib/libgpucache.so:$C/simcuda/libnvidia-ml.so.1:$C/simcuda/libcuda.so.1"
VARIABLES=()
output=$(run_in --gpu-mem=1GiB srun -Q --gpu-mem=9GiB fill 1 0)
like "a step cannot raise the job's limit" "$output" 'gpucache: --gpu-mem=9GiB: the limit of job [0-9]* is 1GiB, for its steps together'
not_ok "it does not run" grep -q pieces <<< "$output"
is "a step may have a limit where the job has none" "$(run_in srun -Q --gpu-mem=1GiB fill 1 100000)" "pieces 960 refused"
is "a job without a limit is left alone" "$(run sh -c 'env | grep -E "GPUCACHE|PRELOAD"; fill 1 4')" "pieces 4"
ok "the node was never drained" wait_for is_node idle

# ---- what is left ----

before=$(ls "$USER_HOME")
output=$(run --gpu-mem=2GiB --comment='my text; of two parts' fill 1 100000)
is "a program prints no report" "$output" "pieces 1984 refused"
is "and leaves none where it was started" "$(ls "$USER_HOME")" "$before"
job=$(last_job)
ok "the use is logged" wait_for has_logged "$job"
is "in bytes" "$(logged "$job")" "peak $((2 * GIB)) of $((2 * GIB)), 1 refused"
is "and in the comment, behind the user's" "$(comment_of "$job")" "my text; of two parts; gpucache: $HOST: peak 2.0 GiB of 2.0 GiB, 1 refused"
job=$(batch "srun fill 1 100; srun fill 1 100; srun fill 1 2000; fill 1 3000" --gpu-mem=1GiB)
ended "$job"
is "the comment of several steps has one part for the node" "$(comment_of "$job")" "gpucache: $HOST: peak 1.0 GiB of 1.0 GiB, 2 refused"
VARIABLES=(GPUCACHE_REPORT=own-%n.json)
run --gpu-mem=1GiB fill 1 10 > "$TMP/run"
is "a report that the user wants is where the user wants it" "$(json "$USER_HOME/own-fill.json" 'r["program"]')" fill
VARIABLES=()
ok "no folder of a job is left" wait_for is_clean
output=$(run --gpu-mem=1GiB sh -c "cd $NODE/jobs; cat *.labels *.limit; stat -c '%n %U %a' * */*" | sed -E 's/\b[0-9]+([./ ])/JOB\1/')
job=$(last_job)
is "while it runs it has a scope, labels and a record" "$output" "job=$job
limit 1GiB
JOB root 1777
JOB.labels root 644
JOB.limit root 644
JOB/$(id -u nobody) nobody 700"

# ---- ends ----

new_folder
job=$(batch "fill 1 1000 $C/hold" --gpu-mem=2GiB)
ok "a job holds memory" wait_for held_by_tasks 1 "$C/hold"
ok "its ledger is in its scope" test -f "$(compgen -G "$NODE/jobs/$job/$(id -u nobody)/ledger-*")"
GPUCACHE_NODE=$NODE "$TOOL" top --all-users --once --json > "$TMP/top.json" 2>&1
is "root sees it with its job and its group" "$(json "$TMP/top.json" '[[p["job"], p["group"], p["devices"][0]["reserved_bytes"]] for p in r["processes"] if p["job"]]')" \
    "[[\"$job\", \"job-$job\", $((1064 * MIB))]]"
scancel "$job"
ok "it is cancelled" ended "$job"
ok "its use is logged" wait_for has_logged "$job"
is "with the peak" "$(logged "$job")" "peak $((1000 * MIB + 64 * MIB)) of $((2 * GIB)), 0 refused"
ok "no folder of the job is left" wait_for is_clean
ok "nor memory on the device" wait_for is_free

new_folder
job=$(batch "srun -O -n 2 sh -c 'if [ \$SLURM_PROCID = 0 ]; then fill 1 800 $C/hold & wait; else until [ -e $C/hold/killed ]; do sleep 0.1; done; fill 1 100000; fi'" \
    --gpu-mem=1GiB)
ok "a task holds memory" wait_for held_by_tasks 1 "$C/hold"
kill -9 "$(ls "$C/hold")"
touch "$C/hold/killed"
ok "its job goes on when it is killed" ended "$job"
is "and has all of its memory again" "$(output_of "$job" | grep -v Killed)" "pieces 800
pieces 960 refused"

new_folder
job=$(batch "fill 1 100000 $C/hold" --gpu-mem=1GiB --array=1-3)
ok "the tasks of an array run beside each other" wait_for held_by_tasks 3 "$C/hold"
is "each has the limit for itself" "$(device_used)" $((3 * GIB))
is "and a scope" "$(find "$NODE/jobs" -mindepth 1 -maxdepth 1 -type d | wc -l)" 3
let_go
ok "the array ends" ended "$job"
is "each was held" "$(output_of "$job")" "pieces 960 refused
pieces 960 refused
pieces 960 refused"
ok "no folder of the array is left" wait_for is_clean

new_folder
job=$(batch "fill 1 10 $C/hold; srun fill 1 100000" --gpu-mem=1GiB)
wait_for held_by_tasks 1 "$C/hold"
cluster_stop_slurmd
slurmd
ok "slurmd starts again while a job runs" wait_for sh -c "sinfo -h -o %T | grep -qE 'mixed|allocated'"
let_go
ok "the job ends" ended "$job"
is "its later steps have the limit" "$(output_of "$job")" "pieces 10
pieces 960 refused"

# ---- a user who spoils the ledger ----

precious=$USER_HOME/precious
as_user mkdir "$precious"
as_user touch "$precious/file"
job=$(batch "srun fill 1 10; for file in \$GPUCACHE_LEDGER/ledger-*; do truncate -s 4096 \$file; done; srun true; fill 1 10" --gpu-mem=1GiB)
ok "a job that cuts its ledger short ends" ended "$job"
ok "and leaves no folder" wait_for is_clean
job=$(batch "rm -rf \$GPUCACHE_LEDGER; ln -s $precious \$GPUCACHE_LEDGER; fill 1 100000" --gpu-mem=1GiB)
ok "a job that puts a link in its ledger's place ends" ended "$job"
ok "and leaves no folder" wait_for is_clean
ok "what the link led to is there" test -f "$precious/file"
like "without the ledger its programs get no device" "$(output_of "$job")" "GPUCACHE_LEDGER_REQUIRED=1, and there is no ledger: cuInit fails"
ok "the node was never drained" wait_for is_node idle

# ---- arguments ----

plugin default=1GiB
is "default: a job without the option has the limit" "$(run fill 1 100000)" "pieces 960 refused"
is "default: the option counts" "$(run --gpu-mem=2GiB fill 1 100000)" "pieces 1984 refused"
plugin default=1GiB set=GPUCACHE_MANAGED=deny
VARIABLES=(GPUCACHE_MANAGED=count)
is "set: the site's variable counts" "$(run sh -c 'echo $GPUCACHE_MANAGED')" deny
VARIABLES=()
plugin required
for command in srun sbatch salloc; do
    before=$(last_job)
    like "required: $command without the option is refused" "$(as_user $command "$C/bin/script" 2>&1)" "gpucache: --gpu-mem=SIZE is required here"
    is "required: no job came of $command" "$(last_job)" "$before"
done
is "required: with the option it runs" "$(run --gpu-mem=1GiB fill 1 100000)" "pieces 960 refused"
like "required: a list of devices alone is no limit of the others" "$(run --gpu-mem=7=1GiB fill 1 0)" "gpucache: --gpu-mem=7=1GiB: a device that it does not name would have no limit"
is "required: a size for all may stand beside one" "$(run --gpu-mem=1GiB,7=2GiB fill 1 100000)" "pieces 960 refused"
is "required: the steps of an allocation need none" "$(run_in --gpu-mem=1GiB srun -Q fill 1 100000)" "pieces 960 refused"
mkdir "$C/other"
cp "$C/cgroup.conf" "$C/gres.conf" "$C/other/"
sed "s,^PlugStackConfig=.*,PlugStackConfig=/dev/null," "$C/slurm.conf" > "$C/other/slurm.conf"
output=$(CONF=$C/other/slurm.conf run fill 1 100000)
like "required: who submits without the plugin is refused on the node" "$output" 'gpucache: --gpu-mem is required here'
not_ok "required: the program does not run" grep -q pieces <<< "$output"
plugin default=1GiB
is "default: who submits without the plugin has the limit" "$(CONF=$C/other/slurm.conf run fill 1 100000)" "pieces 960 refused"
ok "the node was never drained" wait_for is_node idle
plugin summary=log default=1GiB
run fill 1 10 > "$TMP/run"
job=$(last_job)
ok "summary=log: the use is logged" wait_for has_logged "$job"
is "summary=log: there is no comment" "$(comment_of "$job")" ""
for argument in defualt=1GiB default=8Q shard=50% shard=0 library=lib.so library= node=run summary=mail set=PATH=/ set=GPUCACHE_X nonsense; do
    plugin $argument
    output=$(run fill 1 0)
    like "a bad argument, $argument, stops srun with a line" "$output" "gpucache: plugstack.conf: .*accepted: "
    not_ok "$argument: nothing runs" grep -q pieces <<< "$output"
done

# ---- shards, as documented ----

plugin "$(documented plugstack.conf.d/gpucache.conf | sed 's/.*spank_gpucache.so//')"
is "shards: three are three GiB" "$(measure 1 --gres=shard:3 fill 1 100000 "$C/hold")" $((3 * GIB))
is "shards: --gpu-mem may be less" "$(run --gres=shard:3 --gpu-mem=1GiB fill 1 100000)" "pieces 960 refused"
like "shards: it may not be more" "$(run --gres=shard:3 --gpu-mem=4GiB fill 1 0)" "gpucache: --gpu-mem=4GiB: the job's 3 shards on this node are 3.0 GiB"
like "shards: nor a percentage" "$(run --gres=shard:3 --gpu-mem=50% fill 1 0)" 'gpucache: --gpu-mem=50%: a job with shards takes one size'
VARIABLES=(SLURM_SHARDS_ON_NODE=9)
is "shards: the number is Slurm's, not the user's" "$(run sh -c 'echo ${GPUCACHE_GROUP_LIMIT:-none}')" none
VARIABLES=()
is "shards: whole devices have no limit" "$(run --gres=gpu:1 sh -c 'echo ${GPUCACHE_GROUP_LIMIT:-none}')" none
is "shards: Slurm places no more than there are" "$(run --gres=shard:81 fill 1 0 | grep -c 'Requested node configuration is not available')" 1
if grep -q proctrack/cgroup "$SLURM_CONF"; then
    opens="exec 3< $(sed -n 's/.*Name=gpu File=//p' "$C/gres.conf")"
    like "ConstrainDevices: a job without devices cannot open one" "$(run sh -c "$opens")" 'Operation not permitted'
    not_ok "ConstrainDevices: a job with shards can" grep -q 'not permitted' <<< "$(run --gres=shard:1 sh -c "$opens")"
else
    skip "ConstrainDevices" "no control groups or device files can be made here"
fi

# ---- errors of the node ----

plugin default=1GiB library=/nowhere/libgpucache.so
job=$(batch "fill 1 100000")
drained() { node_state | grep -q drain; }
ok "without the library the node is drained" wait_for drained
like "slurmd's log has the reason" "$(cat "$C/log/slurmd")" "gpucache: job $job: library=/nowhere/libgpucache.so: No such file"
is "and the job has not run" "$(output_of "$job")" ""
done_testing
