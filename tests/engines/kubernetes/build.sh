#!/bin/bash
# Builds Kubernetes from Debian's source package, once, into ~/.cache/gpucache/kubernetes/bin (KUBERNETES_CACHE names another
# folder): Debian has the command line's program as a package, but no servers. Some ten minutes on two processors, 3 GB
# while it builds. Needs what scripts/deps.sh kubernetes installs.
set -eu -o pipefail
cache=${KUBERNETES_CACHE:-$HOME/.cache/gpucache/kubernetes}
programs="kubelet kube-apiserver kube-controller-manager kube-scheduler kubectl"
missing=
for program in $programs; do [ -x "$cache/bin/$program" ] || missing=yes; done
[ -n "$missing" ] || exit 0
echo "building Kubernetes from Debian's source package in $cache; some ten minutes, once"
mkdir -p "$cache"/apt/{lists,archives}/partial "$cache/bin"
cd "$cache"

# A configuration of apt's own, which leaves the machine's alone.
cat > apt/sources.list << END
deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main
END
apt_get() {
    apt-get -q -o Dir::Etc::sourcelist="$cache/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$cache/apt/lists" \
        -o Dir::Cache="$cache/apt" "$@"
}
if ! ls -d kubernetes-*/ > /dev/null 2>&1; then
    { apt_get update && apt_get source --only-source kubernetes; } > apt/log 2>&1 || {
        tail -n 20 apt/log >&2
        exit 1
    }
fi
tree=$(echo "$cache"/kubernetes-*/)
upstream=$(sed -n '1s/.*really\([0-9.]*\)-.*/\1/p' "$tree/debian/changelog")
mkdir -p gopath/src/k8s.io
ln -sfn "$tree" gopath/src/k8s.io/kubernetes
export GOPATH=$cache/gopath GO111MODULE=off GOFLAGS=-trimpath GOCACHE=$cache/go-cache CGO_ENABLED=0
key=k8s.io/kubernetes/vendor/k8s.io/component-base/version
flags="-s -w -X $key.gitVersion=v$upstream -X $key.gitMajor=1 -X $key.gitMinor=$(echo "$upstream" | cut -d. -f2) -X $key.gitTreeState=archive"
# The source's own copy of reflect2 (1.0.1) corrupts memory under Go 1.18 and later; Debian's package has the repaired 1.0.2.
rm -f "$tree"/vendor/github.com/modern-go/reflect2/*.go
cp /usr/share/gocode/src/github.com/modern-go/reflect2/*.go "$tree/vendor/github.com/modern-go/reflect2/"
cd gopath/src/k8s.io/kubernetes

# The API server needs a generated file; its inputs are those of the source's own Makefile.
if [ ! -s pkg/generated/openapi/zz_generated.openapi.go ]; then
    go build -o "$cache/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
    inputs=$(grep -rl --include='*.go' '+k8s:openapi-gen=' cmd pkg plugin vendor/k8s.io/*/ | grep -v -e '^vendor/k8s.io/code-generator/' \
        -e '^vendor/k8s.io/sample-apiserver/' -e '^vendor/k8s.io/kube-openapi/' -e '^vendor/k8s.io/gengo/' | xargs -n1 dirname | sort -u | sed 's,^,k8s.io/kubernetes/,' | paste -sd,)
    GOROOT=$(go env GOROOT) "$cache/openapi-gen" --logtostderr -i "$inputs" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
        -h hack/boilerplate/boilerplate.generatego.txt -r "$cache/violations"
fi
for program in $programs; do
    [ -x "$cache/bin/$program" ] && continue
    echo "  $program"
    nice -n 15 go build -ldflags "$flags" -o "$cache/bin/$program" "k8s.io/kubernetes/cmd/$program"
done
# The compiler's cache and the source are not needed again.
chmod -R u+w "$cache/go-cache"
rm -rf "$cache/go-cache" "$cache/openapi-gen"
