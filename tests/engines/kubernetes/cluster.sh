# A cluster of one node in mount, network and process namespaces of its own: etcd, the API server, the controller manager, the
# scheduler, containerd with runc, the kubelet. For scripts that have read lib.sh; NODE_TMP is a folder that stays short, since
# sockets lie in it.
# shellcheck shell=bash
BIN=${KUBERNETES_BIN:-$HOME/.cache/gpucache/kubernetes/bin}
NODE_TMP=$TMP/n
NODE_ADDRESS=10.99.0.1
declare -A daemons=()

# daemon NAME COMMAND…: starts it; its log is $NODE_TMP/NAME.log.
daemon() {
    local name=$1
    shift
    "$@" >> "$NODE_TMP/$name.log" 2>&1 &
    daemons[$name]=$!
}
stop_daemon() {
    kill "${daemons[$1]}" 2> /dev/null
    wait "${daemons[$1]}" 2> /dev/null
    unset "daemons[$1]"
}
# within SECONDS COMMAND…: repeats it until it succeeds.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@" > /dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.3
    done
}
kubectl() { "$BIN/kubectl" --kubeconfig "$NODE_TMP/kubeconfig" "$@"; }
ctr() { command ctr -a "$NODE_TMP/containerd.sock" -n k8s.io "$@"; }

# Everything that these programs write to fixed places lies in the namespace.
own_places() {
    local place
    mount --make-rprivate / && mount --make-rshared / || return
    mkdir -p "$NODE_TMP" /var/lib/kubelet
    for place in /var/lib/kubelet /run /var/log; do
        mount -t tmpfs -o mode=0755,exec none "$place" && mount --make-rshared "$place" || return
    done
    mkdir -p /run/lock /var/log/pods
    # A kubelet sets values of the kernel for the whole machine: it gets files in their place.
    for place in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
        echo "${place#*=}" > "$NODE_TMP/kernel-$(basename "${place%=*}")" && mount --bind "$NODE_TMP/kernel-$(basename "${place%=*}")" "/proc/sys/${place%=*}" || return
    done
    ip link set lo up
    ip link add eth0 type veth peer name eth1 && ip address add $NODE_ADDRESS/24 dev eth0 && ip link set eth0 up && ip link set eth1 up &&
        ip route add default dev eth0
}

start_control_plane() {
    openssl genrsa -out "$NODE_TMP/account.key" 2048 2> /dev/null
    echo "secret,admin,admin,system:masters" > "$NODE_TMP/tokens"
    cat > "$NODE_TMP/kubeconfig" << END
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: secret}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
END
    daemon etcd etcd --data-dir "$NODE_TMP/etcd" --unsafe-no-fsync --listen-peer-urls http://127.0.0.1:2380
    daemon apiserver "$BIN/kube-apiserver" --etcd-servers http://127.0.0.1:2379 --cert-dir "$NODE_TMP/certificates" --secure-port 6443 \
        --bind-address 127.0.0.1 --advertise-address $NODE_ADDRESS --token-auth-file "$NODE_TMP/tokens" --authorization-mode Node,RBAC --allow-privileged --kubelet-preferred-address-types InternalIP \
        --service-account-issuer https://test --service-account-key-file "$NODE_TMP/account.key" \
        --service-account-signing-key-file "$NODE_TMP/account.key" --service-cluster-ip-range 10.98.0.0/24
    within 60 kubectl get --raw /readyz || return
    daemon controllers "$BIN/kube-controller-manager" --kubeconfig "$NODE_TMP/kubeconfig" --service-account-private-key-file "$NODE_TMP/account.key" \
        --use-service-account-credentials=false --leader-elect=false
    daemon scheduler "$BIN/kube-scheduler" --kubeconfig "$NODE_TMP/kubeconfig" --leader-elect=false
}

start_containerd() {
    mkdir -p "$NODE_TMP/cni"
    echo '{"cniVersion": "0.3.1", "name": "test", "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.97.0.0/24"}}]}' > "$NODE_TMP/cni/1.conflist"
    cat > "$NODE_TMP/containerd.toml" << END
version = 2
root = "$NODE_TMP/containerd"
state = "/run/containerd"
[grpc]
  address = "$NODE_TMP/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.example/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$NODE_TMP/cni"
END
    daemon containerd containerd --config "$NODE_TMP/containerd.toml"
    within 30 ctr version
}

start_kubelet() {
    daemon kubelet "$BIN/kubelet" --kubeconfig "$NODE_TMP/kubeconfig" --container-runtime remote \
        --container-runtime-endpoint "unix://$NODE_TMP/containerd.sock" --cgroup-driver cgroupfs --cgroups-per-qos=false --enforce-node-allocatable= \
        --fail-swap-on=false --hostname-override node --node-ip $NODE_ADDRESS --make-iptables-util-chains=false --eviction-hard= \
        --cert-dir "$NODE_TMP/kubelet-certificates" --node-status-update-frequency 2s --sync-frequency 5s
}

# start_cluster: until the node is ready.
start_cluster() {
    own_places && start_control_plane && start_containerd && start_kubelet && within 90 is_ready
}
is_ready() { kubectl get node node -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}' | grep -q True; }

# All processes end with the process namespace; containers' mounts with the mount namespace.
stop_cluster() {
    local name
    for name in "${!daemons[@]}"; do stop_daemon "$name"; done
}

# import_image ROOT NAME [NAME=VALUE…] -- COMMAND…
import_image() {
    local folder=$1 name=$2
    shift 2
    python3 "$(dirname "${BASH_SOURCE[0]}")/archive.py" "$folder" "$name" "$NODE_TMP/image.tar" "$@" && ctr images import "$NODE_TMP/image.tar" && rm "$NODE_TMP/image.tar"
}

show_logs() {
    local file
    for file in "$NODE_TMP"/*.log; do
        echo "== $file"
        tail -n "${1:-15}" "$file" | cut -c1-300
    done
}
