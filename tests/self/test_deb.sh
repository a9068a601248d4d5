#!/bin/bash
# The Debian packages: built, free of lintian's complaints, installed into a throwaway copy of this system's root,
# used from there on the simulated device, and removed without a trace.
# timeout: 600
. "$(dirname "$0")/../lib.sh"

for command in dpkg-buildpackage dh lintian; do
    command -v $command > /dev/null && continue
    skip "Debian packages" "no $command; scripts/deps.sh deb installs it"
    done_testing
done
# Not optimised, by one processor: beside other tests.
ok "the packages are built and lintian has no complaint" env DEB_BUILD_OPTIONS=noopt JOBS=1 "$ROOT/scripts/deb.sh"
# has PACKAGE PATH…: all are in the package.
has() {
    local list path
    list=$(dpkg -c "$ROOT/build/deb/$1"_*.deb)
    shift
    for path; do grep -q " \./$path\$" <<< "$list" || { echo "no $path"; return 1; }; done
}
doc=usr/share/doc/gpucache
mapfile -t documents < <("$ROOT/scripts/files.sh" | grep '^docs/')
mapfile -t examples < <("$ROOT/scripts/files.sh" | grep '^examples/')
ok "the package has the documents" has gpucache "$doc/README.md" "${documents[@]/#/$doc/}"
ok "and the examples" has gpucache "${examples[@]/#/$doc/}"
ok "and the places of the node's ledgers" has gpucache usr/lib/tmpfiles.d/gpucache.conf
ok "Slurm's plugin is a package of its own, with an example" has gpucache-slurm 'usr/lib/.*/slurm-wlm/spank_gpucache.so' \
    usr/share/doc/gpucache-slurm/examples/gpucache.conf
like "for one version of Slurm" "$(dpkg -f "$ROOT"/build/deb/gpucache-slurm_*.deb Depends)" \
    'slurm-wlm-basic-plugins \(>= [0-9.]+\), slurm-wlm-basic-plugins \(<< [0-9.]+~\)'
is "the tmpfiles are those of docs/deploy.md" "$(dpkg --fsys-tarfile "$ROOT"/build/deb/gpucache_*.deb | tar -xO ./usr/lib/tmpfiles.d/gpucache.conf | grep '^d')" \
    "$(grep '^d /run' "$ROOT/docs/deploy.md")"
if ! unshare -m true 2> /dev/null; then
    skip "packages installed, used and removed" "a root of its own needs unshare -m, which is not allowed here"
    done_testing
fi
packages=$(ls "$ROOT"/build/deb/libgpucache0_*.deb "$ROOT"/build/deb/libgpucache-dev_*.deb "$ROOT"/build/deb/gpucache_*.deb)

# Runs in a mount namespace: what changes below the root goes to a memory file system and is gone with it.
cat > "$TMP/inside.sh" << 'END'
set -eu
layer=$1 build=$2
shift 2
mount -t tmpfs none "$layer"
mkdir "$layer/upper" "$layer/work" "$layer/root" "$layer/packages"
cp "$@" "$layer/packages/"
cp -r "$build/simcuda" "$layer/simcuda"
cp "$build/tests/clients/driver_linked" "$layer/app"
mount -t overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" none "$layer/root"
mkdir -p "$layer/root/tmp/deb"
mount --bind "$layer" "$layer/root/tmp/deb"
mount --rbind /dev "$layer/root/dev"
mount --rbind /proc "$layer/root/proc"
exec chroot "$layer/root" /bin/bash /tmp/deb/inner.sh
END
cat > "$TMP/inner.sh" << 'END'
put() { echo "$1: ${*:2}"; }
cd /tmp/deb
dpkg -i packages/*.deb > log 2>&1 || { cat log; exit 1; }
export LD_LIBRARY_PATH=/tmp/deb/simcuda GPUCACHE_REPORT=/tmp/deb/report.json
/usr/bin/gpucache run -- ./app > /dev/null 2>&1; put run $?
put tool "$(/usr/bin/gpucache report report.json | grep -c 'app')"
rm -f report.json
LD_PRELOAD=libgpucache.so ./app > /dev/null 2> errors; put preload $? "$(grep -c preload errors)"
put reported "$([ -s report.json ] && echo yes)"
command -v pkg-config > /dev/null && put flags "$(pkg-config --libs --cflags gpucache)"
put files "$(dpkg -L libgpucache0 libgpucache-dev gpucache | grep -c gpucache)"
dpkg -P gpucache libgpucache-dev libgpucache0 > log 2>&1 || { cat log; exit 1; }
# What a layer over the root still holds, but for dpkg's own books and the linker's cache.
put left "$(find upper ! -type d | grep -Ev '^upper/(tmp|var/lib/dpkg|var/log|var/cache|etc/ld.so.cache)' | tr '\n' ' ')"
END
mkdir "$TMP/layer"
sed -i "s,^exec chroot,cp '$TMP/inner.sh' \"\$layer/inner.sh\"; &," "$TMP/inside.sh"
# shellcheck disable=SC2086 # a list of paths
output=$(unshare -m --propagation private bash "$TMP/inside.sh" "$TMP/layer" "$BUILD_DIR" $packages 2>&1)
value_of() { printf '%s\n' "$output" | sed -n "s/^$1: *//p"; }
if printf '%s\n' "$output" | grep -q 'mount: .*permission denied'; then
    skip "packages installed, used and removed" "no overlay can be mounted here"
else
    is "gpucache run, installed" "$(value_of run)" 0
    ok "its report is read" test "$(value_of tool)" -gt 0
    is "LD_PRELOAD by the plain name" "$(value_of preload)" "0 0"
    is "it reports" "$(value_of reported)" yes
    ok "files are installed" test "$(value_of files)" -gt 8
    is "removal leaves nothing" "$(value_of left)" ""
    [ "$(value_of run)" = 0 ] || printf '%s\n' "$output" | sed 's/^/# /'
fi
done_testing
