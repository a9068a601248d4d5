#!/bin/bash
# Tries the README's commands as a new user would: on a debootstrapped minimal system with `make` and nothing else, from a
# clone or a tarball of HEAD, as root or as an ordinary user, with no CUDA toolkit.
#
# usage: scripts/fresh-machine.sh [SUITE [TARGET [WHO [FROM]]]]
#     SUITE   bookworm (Debian 12), trixie (Debian 13), noble (Ubuntu 24.04)
#     TARGET  demo, demo-swap, test, deb
#     WHO     root: `make TARGET` installs what it needs
#             user: it prints the line that does; root runs that line, and the same command must work
#     FROM    clone (git is there too), tar
# Each may be a list with commas, or `all`, which is the default.
#
# Prints a line for each run; logs are in build/fresh. Exit status 1 if any failed. Needs root, for chroot and mounts.
#
# Each run has a copy of the suite's root, in namespaces of its own: mounts and processes end with it, however it
# ends. The roots are kept in GPUCACHE_FRESH (~/.cache/gpucache-fresh) and made anew after 30 days; so are packages
# and pip's files, which are fetched once. MIRROR is debootstrap's, where its default cannot be reached.
set -eu -o pipefail
cd "$(dirname "$0")/.."
tree=$PWD
cache=${GPUCACHE_FRESH:-${XDG_CACHE_HOME:-$HOME/.cache}/gpucache-fresh}
logs=$tree/build/fresh
max_age_days=30

die() {
    echo "fresh-machine.sh: $*" >&2
    exit 1
}
# chosen WHAT GIVEN VALUE…: the values that the argument GIVEN names.
chosen() {
    local what=$1 given=$2 word
    shift 2
    [ "$given" = all ] && { echo "$@"; return; }
    for word in ${given//,/ }; do
        case " $* " in *" $word "*) echo "$word" ;; *) die "unknown $what: $word (one of: $* all)" ;; esac
    done
}
suites=$(chosen SUITE "${1:-all}" bookworm trixie noble)
targets=$(chosen TARGET "${2:-all}" demo demo-swap test deb)
users=$(chosen WHO "${3:-all}" root user)
sources=$(chosen FROM "${4:-all}" clone tar)
system_name() {
    case $1 in bookworm) echo "Debian 12" ;; trixie) echo "Debian 13" ;; noble) echo "Ubuntu 24.04" ;; esac
}

[ "$(id -u)" -eq 0 ] || die "needs root: debootstrap and chroot do"
scripts/deps.sh fresh
unshare --mount --pid --fork true 2> /dev/null || die "cannot create mount and process namespaces here"
git rev-parse -q --verify HEAD > /dev/null || die "needs a clone with a commit to try"
[ -z "$(git status --porcelain)" ] || echo "note: HEAD is tried, without uncommitted changes"
mkdir -p "$cache" "$logs"
exec 9> "$cache/lock"
flock -n 9 || { echo "waiting for another run, which holds the lock of $cache"; flock 9; }
work=$cache/run
# A killed run leaves its folder.
rm -rf --one-file-system "$work"
child=
# The child's namespaces, with all mounts and processes in them, end when it does.
trap '[ -z "$child" ] || kill -KILL "$child" 2> /dev/null || true; wait || true; rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$work"

# ---- the network and CFLAGS, as they are here ----

# pip needs our own certificates, if any: a bare system has none.
certificates=${PIP_CERT:-${SSL_CERT_FILE:-}}
variables=()
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_DEFAULT_TIMEOUT CFLAGS; do
    [ -z "${!name:-}" ] || variables+=("$name=${!name}")
done
[ -z "$certificates" ] || variables+=(PIP_CERT=/etc/certificates.pem)

# ---- roots ----

# Ubuntu's key, which Debian has as a package from 13 on: taken from there, checked by Debian's.
ubuntu_keyring() {
    local keyring=ubuntu-archive-keyring.gpg
    if [ ! -e "/usr/share/keyrings/$keyring" ] && [ ! -e "$cache/$keyring" ]; then
        make_root trixie
        cp -a "$cache/trixie" "$work/keyring"
        suite=trixie inside "$work/keyring" root 'apt-get update -qq && apt-get install -y -qq ubuntu-archive-keyring' > "$logs/keyring.log" 2>&1
        cp "$work/keyring/usr/share/keyrings/$keyring" "$cache/"
        rm -rf --one-file-system "$work/keyring"
    fi
    if [ -e "$cache/$keyring" ]; then echo "$cache/$keyring"; else echo "/usr/share/keyrings/$keyring"; fi
}

# make_root SUITE: the root in the cache, with `make` and no package lists, as images have it.
make_root() {
    local root=$cache/$1 options=() log=$logs/debootstrap-$1.log
    if [ -e "$root" ] && [ -z "$(find "$root/.made" -mtime -$max_age_days 2> /dev/null)" ]; then
        rm -rf --one-file-system "$root"
    fi
    [ -e "$root" ] && return
    # Its script is that of any older Ubuntu; a real one has `universe` too.
    [ "$1" != noble ] || options=("--components=main,universe" "--keyring=$(ubuntu_keyring)")
    debootstrap --variant=minbase --include=make "${options[@]}" "$1" "$work/$1" "${MIRROR:-}" \
        "$([ "$1" = noble ] && echo gutsy)" > "$log" 2>&1 || return
    rm -rf "$work/$1"/var/cache/apt/archives/*.deb "$work/$1"/var/lib/apt/lists/*
    chroot "$work/$1" useradd --create-home --uid 1000 --user-group user
    touch "$work/$1/.made"
    mv "$work/$1" "$root"
}

# inside ROOT root|user SCRIPT: runs the script there, in a clean environment and namespaces of its own.
inside() {
    local root=$1 home=/root
    [ "$2" = root ] || home=/home/user
    mkdir -p "$cache/apt-$suite/partial" "$cache/pip/root" "$cache/pip/user" "$root/home/user/.cache/pip" "$root/root/.cache/pip"
    chown 1000:1000 "$cache/pip/user" "$root/home/user/.cache" "$root/home/user/.cache/pip"
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    [ -z "$certificates" ] || cp -L "$certificates" "$root/etc/certificates.pem"
    # shellcheck disable=SC2016 # the inner shell expands it
    ROOT=$root CACHE=$cache APT=$cache/apt-$suite unshare --mount --pid --fork --kill-child --propagation private bash -c '
        set -eu
        # A root that is a mount, as a machine has: tests that make namespaces ask for it.
        mount --bind "$ROOT" "$ROOT"
        mount -t proc proc "$ROOT/proc"
        mount -t sysfs -o ro sysfs "$ROOT/sys"
        mount -t tmpfs -o mode=755 tmpfs "$ROOT/dev"
        for node in null zero full random urandom tty; do
            touch "$ROOT/dev/$node"
            mount --bind "/dev/$node" "$ROOT/dev/$node"
        done
        mkdir "$ROOT/dev/shm" "$ROOT/dev/pts"
        mount -t tmpfs -o mode=1777 tmpfs "$ROOT/dev/shm"
        mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$ROOT/dev/pts"
        ln -s pts/ptmx "$ROOT/dev/ptmx"
        ln -s /proc/self/fd "$ROOT/dev/fd"
        for n in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${n%:*}" "$ROOT/dev/${n#*:}"; done
        mount --bind "$APT" "$ROOT/var/cache/apt/archives"
        mount --bind "$CACHE/pip/root" "$ROOT/root/.cache/pip"
        mount --bind "$CACHE/pip/user" "$ROOT/home/user/.cache/pip"
        exec "$@"' inside chroot "--userspec=$2" "$root" env -i "HOME=$home" "USER=$2" TERM=dumb LANG=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${variables[@]}" bash -c "$3" < /dev/null &
    child=$!
    wait "$child"
}

# ---- runs ----

# one TARGET WHO FROM: in a new copy of the suite's root.
one() {
    local target=$1 who=$2 from=$3 root=$work/$suite
    local log=$logs/$suite-$target-$who-$from.log home=/root start counts left line status=0
    [ "$who" = root ] || home=/home/user
    rm -rf --one-file-system "$root"
    cp -a "$cache/$suite" "$root"
    : > "$log"
    mkdir -p "$root$home/libgpucache"
    if [ "$from" = clone ]; then
        inside "$root" root 'apt-get update -qq && apt-get install -y -qq --no-install-recommends git; rm -rf /var/lib/apt/lists/*' > "$log" 2>&1
        git clone -q --no-local "$tree" "$root$home/libgpucache" 2>> "$log"
    else
        git archive HEAD | tar -x -C "$root$home/libgpucache"
    fi
    [ "$who" = root ] || chown -R 1000:1000 "$root$home/libgpucache"
    start=$SECONDS
    if [ "$who" = user ]; then
        inside "$root" user "cd ~/libgpucache && make $target" >> "$log" 2>&1 || true
        line=$(sed -n 's/.*run: \(sudo apt-get .*\)/\1/p' "$log")
        echo "root runs the line: $line" >> "$log"
        inside "$root" root "set -e; sudo() { \"\$@\"; }; export DEBIAN_FRONTEND=noninteractive; ${line:-false}" >> "$log" 2>&1 || status=$?
    fi
    [ $status -ne 0 ] || inside "$root" "$who" "cd ~/libgpucache && make $target" >> "$log" 2>&1 || status=$?
    counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1 || true)
    # Neither /tmp nor the sources keep anything of a run.
    left=$(find "$root/tmp" -mindepth 1 -maxdepth 1 -printf '%f ')
    [ -z "$left" ] || { status=1; echo "left in /tmp: $left" | tee -a "$log"; }
    printf '%-12s  make %-9s  %-4s  %-5s  %-6s  %s%s s\n' "$(system_name "$suite")" "$target" "$who" "$from" \
        "$([ $status -eq 0 ] && echo ok || echo failed)" "${counts:+$counts, }" $((SECONDS - start))
    if [ $status -ne 0 ]; then
        tail -n "${FRESH_TAIL:-25}" "$log" | sed 's/^/    | /'
        echo "    all of it: $log"
        return 1
    fi
}

failed=0
echo "trying $(git rev-parse --short HEAD)"
for suite in $suites; do
    if ! make_root "$suite"; then
        tail -n 5 "$logs/debootstrap-$suite.log" | sed 's/^/    | /'
        echo "$(system_name "$suite"): no root could be made"
        failed=$((failed + 1))
        continue
    fi
    age=$((($(date +%s) - $(stat -c %Y "$cache/$suite/.made")) / 3600))
    echo "$(system_name "$suite"): $cache/$suite, $((age / 24)) days and $((age % 24)) hours old"
    for target in $targets; do
        for who in $users; do
            for from in $sources; do
                one "$target" "$who" "$from" || failed=$((failed + 1))
            done
        done
    done
done
[ $failed -eq 0 ] || die "$failed failed"
