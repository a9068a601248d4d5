#!/bin/bash
# The device plugin in a cluster of one node: Kubernetes' own servers and kubelet, containerd and runc, on the simulated
# device. The manifests are applied as they are. `make test-kubernetes`, as root; some three minutes.
set -u
if [ -z "${KUBERNETES_TEST_OWN:-}" ]; then
    KUBERNETES_TEST_OWN=1 exec unshare -m -n -p -f --mount-proc --kill-child -- "$BASH" "$0"
fi
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../image.sh"
. "$(dirname "$0")/cluster.sh"
unset GPUCACHE_LEDGER GPUCACHE_NODE
trap 'stop_cluster; rm -rf "$TMP"' EXIT
manifests=$ROOT/tools/engines/kubernetes/manifests
pods=/run/gpucache/pods
registry=registry.example

start_cluster || {
    show_logs >&2
    echo "the cluster did not start" >&2
    exit 1
}

# ---- the images: the simulated device stands where NVIDIA's runtime mounts the driver ----

make_image "$TMP/image"
mkdir -p "$TMP/image/usr/lib/simcuda"
cp -L "$SIM_DIR"/lib*.so.* "$TMP/image/usr/lib/simcuda/"
driver=(LD_LIBRARY_PATH=/usr/lib/simcuda SIMCUDA_MEMORY=16GiB SIMCUDA_DEVICES=2 GPUCACHE_REPORT=none)
import_image "$TMP/image" $registry/pause:1 -- /bin/sleep infinity > /dev/null
import_image "$TMP/image" $registry/client:1 "${driver[@]}" -- /bin/sh -c > /dev/null
mkdir -p "$TMP/image/usr/bin" "$TMP/image/usr/lib/gpucache"
cp "$BUILD_DIR/engines/kubernetes/gpucache-device-plugin" "$TMP/image/usr/bin/"
cp "$LIB" "$BUILD_DIR/libgpucache-model.so" "$TMP/image/usr/lib/gpucache/"
import_image "$TMP/image" $registry/gpucache-kubernetes:0.1.0 "${driver[@]}" -- /usr/bin/gpucache-device-plugin > /dev/null

# ---- the plugin ----

units() { kubectl get node node -o "jsonpath={.status.allocatable.gpucache\.dev/${1:-memory-gib}}"; }
has_units() { [ "$(units "${2:-memory-gib}")" = "$1" ]; }
ok "the manifests' fields and names are right" python3 "$(dirname "$0")/manifests.py" "$manifests"/*.yaml "$ROOT/examples/deploy/pod.yaml"
ok "kubectl takes the manifests" kubectl apply -f "$manifests/device-plugin.yaml"
ok "and the examples" kubectl apply --dry-run=server -f "$manifests/example.yaml" -f "$manifests/example-group.yaml" -f "$ROOT/examples/deploy/pod.yaml"
is "a node without the label has no plugin" "$(kubectl -n gpucache get pods -o name)" ""
kubectl label node node gpucache.dev/device-plugin=true > /dev/null
ok "the node has the GiB of its two devices" within 60 has_units 32

# pod NAME TEXT: makes a pod, from a specification with $registry and so on set.
pod() {
    kubectl apply -f - > /dev/null << END
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  restartPolicy: ${RESTART:-Never}
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  securityContext: {runAsUser: ${RUN_AS:-0}}
  containers:
$2
END
}
# container NAME LIMITS COMMAND: a container of the client's image, for `pod`.
container() { printf '  - {name: %s, image: %s/client:1, resources: {limits: {%s}}, env: [%s], args: [%s]}\n' "$1" $registry "$2" "${ENV:-}" "$(json_text "$3")"; }
json_text() { python3 -c 'import json, sys; print(json.dumps(sys.argv[1]))' "$1"; }
asks() { printf "printf '%s' | live_client" "$(printf '%s\\n' "$@")"; }
holds() { printf '(%s; exec sleep infinity) | live_client' "printf '$(printf '%s\\n' "$@")'"; }
phase() { kubectl get pod "$1" -o 'jsonpath={.status.phase}'; }
is_in_phase() { [ "$(phase "$1")" = "$2" ]; }
ended() { case $(phase "$1") in Succeeded | Failed) ;; *) return 1 ;; esac }
# says POD [CONTAINER]: its log, on a line, without the lines about refused requests.
says() { kubectl logs "$@" 2>&1 | grep -v '^gpucache: device 0: .* refused: limit ' | paste -sd' '; }
# ran POD: waits for its end; its log.
ran() { within 60 ended "$1" || kubectl describe pod "$1" | tail -n 15; says "$@"; }
remove() { kubectl delete pod --now "$@" > /dev/null; }
gib() { printf 'gpucache.dev/memory-gib: "%s"' "$1"; }

# ---- a pod is held to its limit; a process's context takes 64 MiB of the simulated device ----

pod held "$(container main "$(gib 2)" "$(asks 'kib 2031617' 'alloc 1984' 'kib 1' info)")"
is "a pod of 2 GiB has them to the byte" "$(ran held)" "ready 2 0 2 0 2147483648"
RUN_AS=1000 pod user "$(container main "$(gib 1)" "$(asks 'kib 983041' 'alloc 960' 'kib 1')")"
is "so has one of another user" "$(ran user)" "ready 2 0 2"
ENV='{name: LD_PRELOAD, value: ""}' pod cleared "$(container main "$(gib 1)" "$(asks 'kib 983041' 'alloc 960')")"
is "a pod's own LD_PRELOAD takes nothing away" "$(ran cleared)" "ready 2 0"
pod whole "$(container main "$(gib 17)" "$(asks 'alloc 1')")"
ok "more than one device has is refused" within 60 is_in_phase whole Failed
like "with the reason" "$(kubectl get pod whole -o 'jsonpath={.status.message}')" '17 GiB would be parts of several GPUs \(GPU-.*=16GiB,GPU-.*=1GiB|=1GiB,GPU-.*=16GiB'
pod huge "$(container main "$(gib 33)" "$(asks 'alloc 1')")"
sleep 3
is "more than the node has waits" "$(phase huge)" Pending
remove huge whole held user cleared

# ---- two containers of a pod; root's view ----

pod two "$(container one "$(gib 2)" "$(holds 'alloc 1984' 'kib 1')")
$(container two "$(gib 1)" "$(holds 'alloc 960' 'kib 1')")"
answered() { [ "$(says "$@")" = "ready 0 2" ]; }
ok "two containers of a pod: the first has its 2 GiB" within 60 answered two -c one
ok "the second its 1 GiB" within 60 answered two -c two
scope_of() { grep -l "^container=$1$" "$pods"/*.labels 2> /dev/null | sed 's/\.labels$//'; }
is_labelled() { [ -n "$(scope_of "$1")" ]; }
ok "their scopes get labels" within 30 is_labelled one
is "which name the pod" "$(paste -sd' ' "$(scope_of two).labels")" "namespace=default pod=two container=two"
is "a scope is sticky and root's" "$(stat -c '%a %u' "$(scope_of one)")" "1777 0"
# group SCOPE KEY: a figure of the scope's group, as root on the node sees it.
group() { GPUCACHE_LEDGER=$1/0 "$TOOL" top --once --json | python3 -c "import json, sys; print(json.load(sys.stdin)['groups'][0]['devices'][0]['$2'])"; }
is "root on the node sees what they hold" "$(group "$(scope_of one)" reserved_bytes) $(group "$(scope_of two)" reserved_bytes)" "2147483648 1073741824"
view=$("$TOOL" top --all-users --once)
printf '%s\n' "$view" | sed 's/^/# /'
like "and in the view of all, by the pod's name" "$view" '[^a-z]two[^a-z]'

# ---- the kubelet starts again ----

stop_daemon kubelet
start_kubelet
registered() { [ "$(kubectl -n gpucache logs "$(plugin_pod)" | grep -c 'memory-gib: registered')" -ge "$1" ]; }
plugin_pod() { kubectl -n gpucache get pods -o name | head -n 1; }
ok "the plugin registers again" within 60 registered 2
ok "the node has its units again" within 60 has_units 32
is "the pod runs on, and holds what it held" "$(phase two) $(group "$(scope_of one)" reserved_bytes)" "Running 2147483648"
pod after "$(container main "$(gib 2)" "$(asks 'kib 2031617' 'alloc 1984')")"
is "a new pod is held" "$(ran after)" "ready 2 0"
RESTART=Always pod again "$(container main "$(gib 1)" "$(asks 'kib 983041' 'alloc 960')")"
restarted() { [ "$(kubectl get pod again -o 'jsonpath={.status.containerStatuses[0].restartCount}')" -ge 1 ]; }
ok "a container that starts again" within 60 restarted
is "is held again" "$(says again)" "ready 2 0"
remove two after again
no_scopes() { [ -z "$(find "$pods" -maxdepth 1 -name 'kube-*' ! -name 'kube-group-*')" ]; }
ok "ended pods leave no scope and no labels" within 120 no_scopes

# ---- a group over pods ----

kubectl -n gpucache patch daemonset gpucache-device-plugin --type json \
    -p '[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--group=team=3@1"}]' > /dev/null
ok "a group takes its GiB from the node's" within 90 has_units 29
ok "and is a resource" within 60 has_units 100 group-team
team='gpucache.dev/group-team: "1"'
pod first "$(container main "$team" "$(holds 'alloc 1984' info)")"
is_held() { [ "$(says first)" = "ready 0 1073741824 3221225472" ]; }
ok "the first pod holds 2 GiB of the group's 3" within 60 is_held
pod second "$(container main "$team" "$(asks 'kib 983041' 'alloc 960' 'kib 1')")"
is "the second gets the rest, to the byte" "$(ran second)" "ready 2 0 2"
is "root on the node sees the group" "$(group "$pods/kube-group-team" limit_bytes)" 3221225472
remove first second

# ---- the pod of examples/deploy, which brings the library itself, on a node whose GPU another plugin shares ----

rm -r "$TMP/image/usr/lib/gpucache"
mkdir -p "$TMP/image/usr/local/lib/gpucache" "$TMP/image/usr/local/bin"
cp "$LIB" "$TMP/image/usr/local/lib/"
cp "$BUILD_DIR/libgpucache-model.so" "$TMP/image/usr/local/lib/gpucache/"
cp "$TOOL" "$TMP/image/usr/local/bin/"
import_image "$TMP/image" $registry/gpucache:0.1.0 -- /bin/sh > /dev/null
import_image "$TMP/image" $registry/server:1 "${driver[@]:0:3}" -- /bin/sh -c "(echo alloc 7000; echo info; sleep 20) | live_client" > /dev/null
import_image "$TMP/image" $registry/batch:1 "${driver[@]:0:3}" -- /bin/sh -c "(sleep 8; echo alloc 2900; echo info) | live_client" > /dev/null
curl -fsk -o /dev/null -H "Authorization: Bearer secret" -H "Content-Type: application/json-patch+json" -X PATCH \
    -d '[{"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "2"}]' https://127.0.0.1:6443/api/v1/nodes/node/status
kubectl apply -f "$ROOT/examples/deploy/pod.yaml" > /dev/null
within 90 ended shared-gpu || kubectl describe pod shared-gpu | tail -n 20
is "the pod without the plugin: the server has its own limit" "$(says shared-gpu -c server)" "ready 0 1182793728 8589934592"
is "the batch job what the group has left" "$(says shared-gpu -c batch)" "ready 0 222298112 10737418240"
remove shared-gpu

# ---- no library, no device ----

mv /var/lib/gpucache/libgpucache.so /var/lib/gpucache/away
ok "without the library on the node no unit is healthy" within 60 has_units 0
pod none "$(container main "$(gib 1)" "$(asks 'alloc 960')")"
sleep 3
is "a pod waits" "$(phase none)" Pending
mv /var/lib/gpucache/away /var/lib/gpucache/libgpucache.so
ok "it runs when the library is back" within 60 ended none
is "with its limit" "$(says none)" "ready 0"
remove none
echo 'other' > /var/lib/gpucache/ld.so.preload
ok "another preload file is as bad" within 60 has_units 0
kubectl -n gpucache delete "$(plugin_pod)" > /dev/null
ok "a new plugin installs it anew" within 90 has_units 29
RESTART=Always pod late "$(container main "$(gib 1)" "$(asks 'alloc 960'); sleep 2")"
within 60 is_in_phase late Running
rm /var/lib/gpucache/libgpucache.so
failed() { kubectl get pod late -o jsonpath='{.status.containerStatuses[0].state.waiting.reason} {.status.containerStatuses[0].lastState.waiting.reason}' | grep -Eq 'Error'; }
ok "a container that starts again without it does not start" within 60 failed
like "and the kubelet says why" "$(kubectl get pod late -o 'jsonpath={.status.containerStatuses[0].state.waiting.message}')" 'libgpucache.so|PreStartContainer'
remove late
[ "${tap_failed:-0}" -eq 0 ] || show_logs 8 | sed 's/^/# /'
done_testing
