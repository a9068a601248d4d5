#!/bin/sh
# Builds the Debian packages into build/deb, from the files git knows, and has lintian read them.
# Needs debhelper, lintian (scripts/deps.sh deb) and the CUDA headers, as every build does.
set -eu
cd "$(dirname "$0")/.."
out=$PWD/build/deb
tree=$out/gpucache
rm -rf "$out"
mkdir -p "$tree"
git ls-files -co --exclude-standard | while read -r file; do [ -e "$file" ] && echo "$file"; done |
    tar -c -T - | tar -x -C "$tree"
version=$(cat VERSION)
[ "$(dpkg-parsechangelog -l debian/changelog -S Version)" = "$version" ] || {
    echo "debian/changelog is not of version $version" >&2
    exit 1
}
cd "$tree"
dpkg-buildpackage -us -uc -b -j2 > "$out/log" 2>&1 || {
    tail -n 30 "$out/log" >&2
    echo "the package was not built; all of it: $out/log" >&2
    exit 1
}
cd "$out"
rm -rf "$tree"
lintian --fail-on error,warning --tag-display-limit 0 -- *.changes
ls -1 "$out"/*.deb
