# A Slurm of one node on loopback, for tests: munged, slurmctld and slurmd, in folders of the test, on the simulated device.
# Its configuration is that of docs/deploy.md; only names, numbers of this machine and places are put in.
# Needs tests/lib.sh, and root.
# shellcheck shell=bash disable=SC2016,SC2119,SC2120,SC2154 # variables of lib.sh; the arguments of run.sh
HOST=$(hostname -s)
C=$TMP/cluster    # all of it; readable by the jobs' user
USER_HOME=$C/home # where jobs are submitted
NODE=$C/node      # in place of /run/gpucache
export SLURM_CONF=$C/slurm.conf
had_groups=$(compgen -G '/sys/fs/cgroup/*/slurm*')
unset GPUCACHE_LEDGER

# documented FILE: what docs/deploy.md has for it.
documented() {
    awk -v wanted="\`\`\`conf $1" '$0 == wanted {inside = 1; next} /^```$/ {inside = 0} inside' "$ROOT/docs/deploy.md"
}

free_ports() {
    python3 -c 'import socket
sockets = [socket.socket() for _ in range(2)]
for s in sockets: s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))'
}

# plugin ARGUMENTS…: the line of plugstack.conf. srun, slurmstepd and slurmd read it anew for each job.
plugin() { echo "required $C/spank_gpucache.so library=$C/lib/libgpucache.so node=$NODE $*" > "$C/plugstack.conf"; }

# Slurm's files are not asked of the checkout, which the jobs' user may be unable to read.
cluster_files() {
    chmod 755 "$TMP"
    mkdir -p "$C"/{lib,bin,munge,state,spool,log,dev} "$USER_HOME"
    chown nobody "$USER_HOME"
    cp "$LIB" "$C/lib/"
    cp -r "$SIM_DIR" "$C/simcuda"
    cp "$BUILD_DIR/engines/slurm/spank_gpucache.so" "$C/"
    cp "$BUILD_DIR/tests/engines/slurm/fill" "$BUILD_DIR/tests/preload/nvml_dlopen" "$TOOL" "$C/bin/"
    printf '#!/bin/sh\nfill 1 0\n' > "$C/bin/script"
    chmod 755 "$C/bin/script"
    chmod -R go+rX "$C/lib" "$C/bin" "$C/simcuda" "$C/spank_gpucache.so"
    head -c 128 /dev/urandom > "$C/munge/key"
    chmod 600 "$C/munge/key"
}

# A device file that no other program uses; where none can be made, one that all may use.
cluster_device() {
    device=$C/dev/nvidia0
    mknod "$device" c 195 0 2> /dev/null && chmod 666 "$device" && return
    device=/dev/null
}

cluster_configure() {
    local ports
    read -r -a ports < <(free_ports)
    cluster_device
    documented slurm.conf | sed -e "s/\bnode1\b/$HOST/g; s,^PlugStackConfig=.*,PlugStackConfig=$C/plugstack.conf," \
        -e "s/CPUs=16 RealMemory=64000/NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=1000/" \
        -e 's/^\(PartitionName=.*\)/\1 OverSubscribe=FORCE:16/' > "$C/slurm.conf"
    cat >> "$C/slurm.conf" << END
ClusterName=test
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmdPort=${ports[1]}
AuthInfo=socket=$C/munge/socket
SlurmUser=root
StateSaveLocation=$C/state
SlurmdSpoolDir=$C/spool
SlurmctldPidFile=$C/slurmctld.pid
SlurmdPidFile=$C/slurmd.pid
SlurmctldLogFile=$C/log/slurmctld
SlurmdLogFile=$C/log/slurmd
MailProg=/bin/true
MpiDefault=none
KillWait=2
END
    documented gres.conf | sed -e "s/\bnode1\b/$HOST/; s,/dev/nvidia0,$device," > "$C/gres.conf"
    documented cgroup.conf > "$C/cgroup.conf"
    plugin
}

wait_for() { # wait_for COMMAND…: until it succeeds, 30 s at most
    local i
    for ((i = 0; i < 600; i++)); do
        "$@" > /dev/null 2>&1 && return
        sleep 0.05
    done
    return 1
}
node_state() { sinfo -h -N -o %T 2> /dev/null; }
is_node() { [ "$(node_state)" = "$1" ]; }

start_slurmd() {
    slurmd
    wait_for is_node idle
}

# Control groups as documented where they can be had, else none.
cluster_start() {
    cluster_files
    cluster_configure
    munged --force --key-file "$C/munge/key" --socket "$C/munge/socket" --pid-file "$C/munge/pid" --log-file "$C/log/munged" \
        --seed-file "$C/munge/seed" 2> /dev/null
    slurmctld
    start_slurmd && [ "$device" != /dev/null ] && return
    cluster_stop_slurmd
    sed -i 's,proctrack/cgroup,proctrack/linuxproc,; s,task/cgroup,task/none,' "$C/slurm.conf"
    scontrol reconfigure
    start_slurmd
}

# stop PIDFILE: ends a daemon that this test started.
stop() {
    local pid
    pid=$(cat "$1" 2> /dev/null) || return 0
    kill "$pid" 2> /dev/null
    wait_for sh -c "! kill -0 $pid"
}
cluster_stop_slurmd() { stop "$C/slurmd.pid"; }

cluster_stop() {
    scancel -u nobody 2> /dev/null
    wait_for sh -c '[ -z "$(squeue -h)" ]'
    cluster_stop_slurmd
    stop "$C/slurmctld.pid"
    stop "$C/munge/pid"
    [ -n "$had_groups" ] || find /sys/fs/cgroup/*/slurm* -depth -type d -exec rmdir {} + 2> /dev/null
    rm -f "/dev/shm/simcuda-$(id -u nobody)-slurm-$$"
}

# as_user COMMAND…: as the jobs' user, in that user's folder, with a plain environment. VARIABLES are added.
as_user() {
    (cd "$USER_HOME" && exec timeout 100 setpriv --reuid=nobody --regid=nogroup --clear-groups \
        env -i PATH="$C/bin:/usr/bin:/bin" HOME="$USER_HOME" SLURM_CONF="${CONF:-$SLURM_CONF}" LD_LIBRARY_PATH="$C/simcuda" \
        SIMCUDA_MEMORY=16GiB SIMCUDA_SHARED="slurm-$$" "${VARIABLES[@]}" "$@")
}
VARIABLES=()

# The library says why a request is refused; most tests look at the rest.
without_reasons() { grep -vE '^gpucache: device [0-9]+: .* refused: ' || true; }

# run ARGUMENTS…: srun; what both streams have.
run() { as_user srun -Q "$@" 2>&1 | without_reasons; }
run_in() { as_user salloc -Q "$@" 2>&1 | without_reasons; } # run_in ARGUMENTS…: in an allocation
output_of() { cat "$USER_HOME/$1"_*.out 2> /dev/null | without_reasons; } # output_of JOB

# batch SCRIPT ARGUMENTS…: sbatch; prints the job's number. Its output is in JOB.out.
batch() {
    local text=$1
    shift
    as_user sbatch --parsable -o "%A_%a.out" "$@" <<< "#!/bin/sh
$text"
}
has_ended() { [ -z "$(squeue -h -j "$1" 2> /dev/null)" ]; }
ended() { wait_for has_ended "$1"; } # ended JOB

# device_used: bytes in use on the device, as seen from outside of the library.
device_used() { as_user nvml_dlopen plain | awk '$3 == "nvml1" {print $6; exit}'; }
