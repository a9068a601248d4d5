#!/bin/sh
# Builds the Debian packages into build/deb, from a copy of the tree's own files, and has lintian read them.
# Needs what scripts/deps.sh deb installs, the CUDA headers among it. JOBS: so many processors, all without.
set -eu
cd "$(dirname "$0")/.."
out=$PWD/build/deb
tree=$out/gpucache
rm -rf "$out"
mkdir -p "$tree"
scripts/files.sh | tar -c -T - | tar -x -C "$tree"
# The copy finds headers where this tree does.
mkdir "$tree/build"
ln -s "$PWD/build/cuda" "$tree/build/cuda"
version=$(cat VERSION)
[ "$(dpkg-parsechangelog -l debian/changelog -S Version)" = "$version" ] || {
    echo "debian/changelog is not of version $version" >&2
    exit 1
}
# The package for Kubernetes is built where Go and its packages are (scripts/deps.sh kubernetes).
profiles=
if command -v go > /dev/null && [ -d /usr/share/gocode/src/google.golang.org/grpc ]; then
    profiles=pkg.gpucache.kubernetes
else
    echo "without gpucache-kubernetes: scripts/deps.sh kubernetes installs its build dependencies"
fi
echo "building packages; the log is build/deb/log"
cd "$tree"
# It is a build of its own, not part of the make that may have called; a copy needs no cleaning.
env -u MAKEFLAGS -u MAKELEVEL DEB_BUILD_PROFILES="$profiles" \
    dpkg-buildpackage -us -uc -b -nc -j"${JOBS:-$(nproc)}" > "$out/log" 2>&1 || {
    tail -n 30 "$out/log" >&2
    echo "the package was not built; all of it: $out/log" >&2
    exit 1
}
cd "$out"
rm -rf "$tree"
# lintian leaves files in its TMPDIR.
mkdir "$out/tmp"
TMPDIR=$out/tmp lintian --allow-root --fail-on error,warning --tag-display-limit 0 -- *.changes
rm -rf "$out/tmp"
ls -1 "$out"/*.deb
