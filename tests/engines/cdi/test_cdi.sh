#!/bin/bash
# Device memory as a device of containers: `gpucache cdi` writes the specification, Podman turns it into a
# configuration, runc runs that on the simulated device, whose own specification stands for the vendor's.
# timeout: 400
# alone: it makes and ends containers
if [ "$(id -u)" -ne 0 ] || ! command -v podman runc > /dev/null; then
    echo "1..0 # SKIP Podman and runc are needed, as root: make test-cdi"
    exit 0
fi
# A /run of our own: the specifications, the node's folder and the containers' state lie below it.
if [ -z "${CDI_TEST_OWN_RUN:-}" ]; then
    CDI_TEST_OWN_RUN=1 exec unshare -m -- "$BASH" "$0"
fi
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../image.sh"
mount -t tmpfs -o mode=0755 none /run || exit 1
mkdir -p /run/cdi /run/lock
unset GPUCACHE_LEDGER GPUCACHE_NODE
pods=/run/gpucache/pods
image=$TMP/image
make_image "$image"

cat > /run/cdi/vendor.json << END
{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void", "GPUCACHE_REPORT=none"]}}],
 "containerEdits": {"env": ["LD_LIBRARY_PATH=/usr/lib/simcuda", "SIMCUDA_MEMORY=16GiB"],
  "mounts": [{"hostPath": "$SIM_DIR", "containerPath": "/usr/lib/simcuda", "options": ["ro", "bind"]}]}}
END
ok "the specification is written" "$TOOL" cdi --output /run/cdi/gpucache.json
ok "it is JSON, its devices' names and keys are the standard's" python3 - << 'END'
import json, re
spec = json.load(open("/run/cdi/gpucache.json"))
assert spec["kind"] == "gpucache.dev/memory" and re.fullmatch(r"0\.\d\.\d", spec["cdiVersion"])
names = [device["name"] for device in spec["devices"]]
assert "2GiB" in names and len(set(names)) == len(names) > 10, names
assert all(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", name) for name in names), names
assert [hook["hookName"] for hook in spec["containerEdits"]["hooks"]] == ["createContainer", "poststop"]
END

engine=(podman --root "$TMP/store" --runroot /run/podman --tmpdir /run/podman-tmp --runtime runc --cgroup-manager cgroupfs --events-backend none)
limits=(--network none --ulimit nofile=1024 --ulimit nproc=4096 --log-driver none --pull never)
# container SIZE OPTIONS… -- COMMAND…: a container with both devices.
container() {
    local size=$1 options=()
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    timeout 60 "${engine[@]}" run --rm "${limits[@]}" --device nvidia.com/gpu=0 --device "gpucache.dev/memory=$size" "${options[@]}" \
        --rootfs "${ROOTFS:-$image}" "$@"
}
# answers: input on a line, without the lines about refused requests.
answers() { grep -v '^gpucache: device 0: .* refused: limit ' | paste -sd' '; }
# asks LINES…: the answers of a client in a container of 2 GiB.
asks() { printf '%s\n' "$@" | container "${SIZE:-2GiB}" -i "${USERS[@]}" -- /bin/live_client 2>&1 | answers; }
USERS=()

# The context of a process takes 64 MiB of the simulated device.
is "2 GiB to the byte: all of it, then not one more" "$(asks 'kib 2031616' 'kib 1')" "ready 0 2"
is "a byte too much is refused at once" "$(asks 'kib 2031617' 'alloc 1984')" "ready 2 0"
is "512 MiB are another device's" "$(SIZE=512MiB asks 'kib 458753' 'alloc 448' 'kib 1')" "ready 2 0 2"
USERS=(--user 1000:1000)
is "a user in the container has the limit, too" "$(asks 'alloc 1984' 'kib 1')" "ready 0 2"
USERS=()
is "no scope is left" "$(ls "$pods")" ""
# shellcheck disable=SC2016 # the container's shell expands it
is "two processes of a container share its limit" "$(container 2GiB -- /bin/sh -c '
    (echo alloc 1472; sleep 3) | live_client > /tmp/first & sleep 1.5
    printf "kib 458753\nalloc 448\nkib 1\n" | live_client; wait; cat /tmp/first' 2>&1 | answers)" "ready 2 0 2 ready 0"
is "a variable of the command line does not replace the limit" \
    "$(USERS=(-e GPUCACHE_GROUP_LIMIT=16GiB -e GPUCACHE_GROUP=mine) && asks 'kib 2031617' 'alloc 1984')" "ready 2 0"
like "with a mode without a limit it does not start" "$(USERS=(-e GPUCACHE_MODE=off) && asks 'alloc 1984')" 'no limit: GPUCACHE_MODE=off is not valid there'
echo GPUCACHE_MODE=off > "$image/etc/gpucache.conf"
is "in a file of the image it does not count" "$(asks 'kib 2031617' 'alloc 1984')" "ready 2 0"
rm "$image/etc/gpucache.conf"
is "a limit of its own below that holds" "$(USERS=(-e GPUCACHE_LIMIT=1GiB) && asks 'kib 983041' 'alloc 960')" "ready 2 0"

# ---- root on the host ----

# shellcheck disable=SC2016
start() { # start NAME SIZE MIB
    local id
    id=$("${engine[@]}" run -d --name "$1" "${limits[@]}" --device nvidia.com/gpu=0 --device "gpucache.dev/memory=$2" \
        --rootfs "$image" /bin/sh -c 'exec 3>&1; (echo alloc '"$3"'; sleep 600) | live_client > /tmp/'"$1") || return
    for ((i = 0; i < 200; i++)); do
        grep -qs '^0$' "$image/tmp/$1" && break
        sleep 0.05
    done
    echo "$id"
}
one=$(start one 2GiB 1984)
two=$(start two 1GiB 960)
is "two containers hold their limits at once" "$(cat "$image/tmp/one" "$image/tmp/two" | paste -sd' ')" "ready 0 ready 0"
is "each has a scope, sticky, and labels that only root writes" \
    "$(stat -c '%n %a %u' "$pods/$one" "$pods/$one.labels" | sed "s,$pods/,,")" "$one 1777 0
$one.labels 644 0"
is "the labels name the container" "$(cat "$pods/$two.labels")" "container=$two"
# group NAME KEY: a figure of a container's group, as root on the host sees it.
group() { GPUCACHE_LEDGER=$pods/$1/0 "$TOOL" top --once --json | python3 -c "import json, sys; print(json.load(sys.stdin)['groups'][0]['devices'][0]['$2'])"; }
is "root on the host sees what it holds, to the byte" "$(group "$one" reserved_bytes) $(group "$two" reserved_bytes)" "2147483648 1073741824"
like "and in the view of all" "$("$TOOL" top --all-users --once)" "${one:0:8}"
ok "and steers it" env GPUCACHE_LEDGER="$pods/$one/0" "$TOOL" limit container 3GiB
is "its limit becomes 3 GiB" "$(group "$one" limit_bytes)" 3221225472
is "a container sees its own scope alone" "$("${engine[@]}" exec two ls /run/gpucache /run/gpucache/users | paste -sd' ')" "/run/gpucache: users  /run/gpucache/users: 0"
not_ok "it cannot write beside its scope" "${engine[@]}" exec two sh -c ': > /run/gpucache/x.labels; mount -o remount,exec /run/gpucache/users'
"${engine[@]}" kill -s KILL one > /dev/null
"${engine[@]}" rm -f -t 1 one two > /dev/null
is "killed and removed containers leave no scope" "$(ls "$pods")" ""

# ---- no limit, no container ----

ran=$image/tmp/ran
# starts NAME: whether the container's program ran; the engine's words are in $TMP/said.
starts() { rm -f "$ran"; container 2GiB -- /bin/sh -c ': > /tmp/ran' > "$TMP/said" 2>&1; [ -e "$ran" ]; }
ok "the container starts" starts
cp "$LIB" "$TMP/lib.so"
"$TOOL" cdi --library "$TMP/lib.so" --output /run/cdi/gpucache.json
ok "with a library elsewhere, too" starts
rm "$TMP/lib.so"
not_ok "without the library it does not start" starts
"$TOOL" cdi --output /run/cdi/gpucache.json
chmod 0777 "$pods"
not_ok "where others may write to the node's folder it does not start" starts
like "and the engine says why" "$(cat "$TMP/said")" "gpucache cdi: $pods.*no other can write"
chmod 0755 "$pods"
mv "$pods" "$pods.away"
ln -s "$TMP" "$pods"
not_ok "where that is a link it does not start" starts
rm "$pods"
mv "$pods.away" "$pods"
ok "afterwards it starts again" starts

# ---- an image that tries to lead the mount elsewhere ----

hostile=$TMP/hostile
cp -a "$image" "$hostile"
mkdir -p "$TMP/outside/users" "$hostile/$TMP/outside/users"
rm -rf "$hostile/run"
mkdir "$hostile/run"
ln -s "../../../../../../../../..$TMP/outside" "$hostile/run/gpucache"
is "a link of the image stays in the image" "$(ROOTFS=$hostile asks 'kib 2031617' 'alloc 1984')" "ready 2 0"
is "and nothing was made on the host" "$(find "$TMP/outside" | wc -l)" 2

# ---- Podman's configuration, changed, run by runc itself ----

"${engine[@]}" create --name bundle "${limits[@]}" --device nvidia.com/gpu=0 --device gpucache.dev/memory=2GiB --rootfs "$image" \
    /bin/sh -c 'printf "kib 2031617\nalloc 1984\n" | live_client; : > /tmp/ran' > /dev/null
"${engine[@]}" init bundle > /dev/null
configuration=$(find "$TMP/store" -name config.json | head -n 1)
mkdir "$TMP/bundle"
# runs EXPRESSION: runs the configuration `c` after a change in Python.
runs() {
    rm -f "$ran"
    python3 - "$configuration" "$TMP/bundle/config.json" "$1" << 'END'
import json, sys
c = json.load(open(sys.argv[1]))
c["process"]["terminal"] = False
c["linux"]["cgroupsPath"] = "/gpucache-cdi-test"
c["hooks"].pop("prestart", None)
c["mounts"] = [m for m in c["mounts"] if not m["source"].startswith("/run/podman") and "/store/" not in m["source"]]
c["mounts"] = [m for m in c["mounts"] if m.get("type") != "mqueue"]
env = c["process"]["env"]
exec(sys.argv[3])
json.dump(c, open(sys.argv[2], "w"))
END
    timeout 60 runc --root /run/runc-test run --bundle "$TMP/bundle" cdi-test > "$TMP/said" 2>&1
    [ -e "$ran" ]
}
change() { echo "c['process']['env'] = [e.replace('$1', '$2') for e in env]"; }
ok "runc runs it as it is" runs pass
is "with its limit" "$(answers < "$TMP/said")" "ready 2 0"
not_ok "without the preload it does not start" runs "$(change LD_PRELOAD= X=)"
like "and runc says why" "$(cat "$TMP/said")" 'the container has no limit: LD_PRELOAD= does not name /usr/lib/gpucache/libgpucache.so'
not_ok "with a library of another place before the mount it does not start" runs "$(change LD_PRELOAD=/usr/lib/gpucache/libgpucache LD_PRELOAD=/opt/libgpucache)"
ok "with another library beside it it starts" runs "$(change LD_PRELOAD= LD_PRELOAD=/opt/none.so:)"
cat > "$TMP/evil.c" << END
#include <fcntl.h>
__attribute__((constructor)) static void run(void) { open("$TMP/evil-ran", O_CREAT | O_WRONLY, 0600); }
END
"${CC:-gcc}" -shared -fPIC -o "$image/evil.so" "$TMP/evil.c"
ok "the image's own preload is loaded" runs "$(change LD_PRELOAD= LD_PRELOAD=/evil.so:)"
rm -f "$TMP/evil-ran"
ok "it starts with one that the hook's folder would have, too" runs "$(change LD_PRELOAD= LD_PRELOAD=/proc/self/cwd/evil.so:)"
not_ok "which the hook on the host does not load" test -e "$TMP/evil-ran"
not_ok "without the limit it does not start" runs "$(change GPUCACHE_GROUP_LIMIT= X=)"
not_ok "with a limit that is none it does not start" runs "$(change GPUCACHE_GROUP_LIMIT=2GiB GPUCACHE_GROUP_LIMIT=lots)"
like "and runc says what is accepted" "$(cat "$TMP/said")" 'GPUCACHE_GROUP_LIMIT=lots is not valid; accepted: a size'
not_ok "with the mode off it does not start" runs "$(change GPUCACHE_MODE=cache GPUCACHE_MODE=off)"
not_ok "with another ledger it does not start" runs "env.append('GPUCACHE_LEDGER=/tmp/mine')"
not_ok "without the group it does not start" runs "$(change GPUCACHE_GROUP=container X=)"
not_ok "without the library's mount it does not start" runs "c['mounts'] = [m for m in c['mounts'] if 'libgpucache' not in m['destination']]"
not_ok "with another file in its place it does not start" \
    runs "[m.update(source='/etc/hostname') for m in c['mounts'] if m['destination'].endswith('/libgpucache.so')]"
like "and runc says which" "$(cat "$TMP/said")" 'libgpucache.so in it is another file than'
not_ok "without a place for the scope it does not start" \
    runs "c['mounts'] = [m for m in c['mounts'] if 'users' not in m['destination']]; __import__('shutil').rmtree('$image/run/gpucache', True)"
ok "it starts again as it is" runs pass
"${engine[@]}" rm -f bundle > /dev/null
is "none of them left a scope" "$(ls "$pods")" ""
done_testing
