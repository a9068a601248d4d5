#!/bin/bash
# What docs/deploy.md shows, as far as it needs no cluster: the checks, the pod's settings,
# /etc/ld.so.preload, HAMi's variables as its plugin sets them; on the simulated device.
# timeout: 400
. "$(dirname "$0")/../lib.sh"
deploy=$ROOT/examples/deploy
client=$BUILD_DIR/tests/preload/nvml_dlopen
export SIMCUDA_MEMORY=16GiB SIMCUDA_SHARED=deploy-$$ GPUCACHE_REPORT=none

# total COMMAND…: the device's MiB as a client of NVML sees them.
total() { "$@" "$client" plain 2>&1 | awk '$3 == "nvml1" {print $4 / 1048576; next} $3 != "nvml2"'; }
# hold MIB COMMAND…: a process that holds memory until $holder is killed.
hold() {
    local mib=$1
    shift
    rm -f "$TMP/holder"
    env LD_LIBRARY_PATH="$SIM_DIR" "$@" "$client" hold "$mib" > "$TMP/holder" 2>&1 &
    holder=$!
    for ((i = 0; i < 2000; i++)); do
        grep -qs '^holding' "$TMP/holder" && break
        sleep 0.05
    done
}
let_go() { { kill "$holder"; wait "$holder"; } 2> /dev/null; }
trap 'let_go; rm -rf "$TMP"; rm -f "/dev/shm/simcuda-$(id -u)-$SIMCUDA_SHARED"' EXIT

# ---- the checks ----

checks=$(awk '/^```sh check$/ {inside = 1; next} /^```$/ {inside = 0} inside' "$ROOT/docs/deploy.md")
ok "there are checks" test "$(wc -l <<< "$checks")" -ge 4
while IFS= read -r check; do
    case $check in
    *pynvml*)
        if [ ! -x "$ROOT/build/venv-nvml/bin/python3" ]; then
            skip "check: $check" "nvidia-ml-py is not there"
            continue
        fi
        is "check: $check" "$(GPUCACHE_LIMIT=8GiB GPUCACHE_LEDGER=$TMP/checks \
            preloaded env PATH="$ROOT/build/venv-nvml/bin:$PATH" sh -c "$check" 2>&1)" "8192 MiB"
        ;;
    *) ok "check: $check" env GPUCACHE_LIMIT=8GiB GPUCACHE_LEDGER="$TMP/checks" PATH="$BUILD_DIR:$PATH" LD_PRELOAD="$LIB" sh -c "$check" ;;
    esac
done <<< "$checks"
not_ok "the first check fails where it is not loaded" sh -c 'grep -q libgpucache /proc/self/maps'

# ---- the pod ----

# settings CONTAINER: the environment that pod.yaml gives it.
settings() {
    awk -v wanted="$1" '/- name: / {name = $3} name == wanted && /- {name: / {
        gsub(/[{},"]/, ""); if ($3 != "LD_PRELOAD" && $3 != "NVIDIA_VISIBLE_DEVICES") print $3 "=" $5}' "$deploy/pod.yaml"
}
mkdir "$TMP/reports"
mapfile -t server < <(settings server | sed "s,=/reports/,=$TMP/reports/,; s,^GPUCACHE_WAIT=.*,GPUCACHE_WAIT=0,")
mapfile -t batch < <(settings batch | sed "s,=/reports/,=$TMP/reports/,")
server+=("LD_PRELOAD=$LIB" "GPUCACHE_LEDGER=$TMP/pod")
batch+=("LD_PRELOAD=$LIB" "GPUCACHE_LEDGER=$TMP/pod" GPUCACHE_WAIT=0)
is "the pod: the server's limit is its own" "$(total simulated env "${server[@]}")" 8192
is "the pod: the batch job's is the group's" "$(total simulated env "${batch[@]}")" 10240
like "the pod: the server gets no more than its own" "$(simulated env "${server[@]}" timeout 120 "$client" hold 9000 2>&1)" "CUDA error 2"
hold 7000 "${server[@]}"
is "the pod: the server holds its part" "$(cat "$TMP/holder")" holding
like "the pod: both together get no more than the group's" "$(simulated env "${batch[@]}" timeout 120 "$client" hold 4000 2>&1)" "CUDA error 2"
is "the pod: the rest can be allocated" "$(simulated env "${batch[@]}" timeout 120 "$client" cuda 2500 2>&1 | grep -c '^held')" 4
is "the pod: each process leaves a report" "$(json "$(find "$TMP/reports" -name 'batch-*.json' | tail -n 1)" 'd["oom_count"] + d["alloc_count"] > 0')" true
like "the pod: top shows the process that holds it" "$(GPUCACHE_LEDGER=$TMP/pod "$TOOL" top --once)" 'shared-g.* server'
let_go

if python3 -c 'import yaml' 2> /dev/null; then
    ok "the pod and the other manifests: fields and names" python3 "$ROOT/tests/engines/kubernetes/manifests.py" "$deploy/pod.yaml" "$ROOT"/tools/engines/kubernetes/manifests/*.yaml
else
    skip "the pod and the other manifests: fields and names" "no PyYAML (Debian: python3-yaml)"
fi

# ---- in place of HAMi-core: under its name, with its plugin's variables ----

cp "$LIB" "$TMP/libvgpu.so"
hami=(LD_PRELOAD="$TMP/libvgpu.so" GPUCACHE_LEDGER="$TMP/hami" CUDA_DEVICE_MEMORY_LIMIT_0=3000m CUDA_DEVICE_SM_LIMIT=30
    CUDA_DEVICE_MEMORY_SHARED_CACHE=/usr/local/vgpu/9f0c.cache NVIDIA_VISIBLE_DEVICES=GPU-513c0da0)
is "HAMi: its limit is the device's size" "$(total simulated env "${hami[@]}")" 3000
hold 2000 "${hami[@]}"
is "HAMi: what is not served is logged once, and the program runs" "$(cat "$TMP/holder")" "\
gpucache: CUDA_DEVICE_SM_LIMIT=30: not served: only memory is limited, not the time on the device
holding"
like "HAMi: a container's processes share the limit" "$(simulated env "${hami[@]}" timeout 120 "$client" hold 1500 2>&1)" "CUDA error 2"
let_go
is "HAMi: control disabled" "$(total simulated env "${hami[@]}" CUDA_DISABLE_CONTROL=true)" 16384

# ---- /etc/ld.so.preload, in a file system of our own ----

# machine COMMAND…: where /etc has the two files
# shellcheck disable=SC2016 # the inner shell expands it
machine() {
    unshare -m sh -c 'mount -t tmpfs none "$1" && mkdir "$1/upper" "$1/work" &&
        mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/upper,workdir=$1/work" /etc || exit 77
        printf "GPUCACHE_LIMIT=50%%\nGPUCACHE_REPORT=none\n" > /etc/gpucache.conf
        echo "$2" > /etc/ld.so.preload
        shift 2
        exec "$@"' sh "$TMP/etc" "${PRELOAD:-$LIB}" "$@" 2>&1
}
mkdir "$TMP/etc"
if machine true; then
    unset GPUCACHE_REPORT
    is "the machine: programs without CUDA log nothing" "$(machine sh -c 'true; ls / > /dev/null; env -i /bin/true; cat /dev/null')" ""
    like "the machine: ldd lists it" "$(machine ldd /bin/true)" "libgpucache"
    is "the machine: half of the device" "$(total machine env LD_LIBRARY_PATH="$SIM_DIR")" 8192
    is "the machine: an empty environment has the limit too" "$(total machine env -i SIMCUDA_MEMORY=16GiB LD_LIBRARY_PATH="$SIM_DIR")" 8192
    like "the machine: and it holds" "$(machine env LD_LIBRARY_PATH="$SIM_DIR" GPUCACHE_LEDGER="$TMP/machine" timeout 120 "$client" hold 9000)" "CUDA error 2"
    like "the machine: a wrong path is an error line, and programs run" "$(PRELOAD=/nowhere/x.so machine echo it runs)" "it runs"
else
    skip "the machine" "no file system of our own is possible here"
fi
done_testing
