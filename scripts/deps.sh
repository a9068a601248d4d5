#!/bin/bash
# Installs the missing packages for building, testing or checking.
#
# usage: scripts/deps.sh [build|demo|test|bench|lint|deb|wheel|aarch64|containers|kubernetes|slurm|readers|fresh|all]
#
# One table has the needs of each set; all missing packages are found before any is installed. The CUDA headers come from
# CUDA_HOME, /usr/local/cuda, /usr, or, as a last resort, from PyPI into build/cuda, which needs Python.
#
# A set that is complete costs a few milliseconds and prints nothing. Missing Debian/Ubuntu packages are installed if
# we are root, else the one line to run is printed and the status is 1. Asks no questions.
set -eu -o pipefail
cd "$(dirname "$0")/.."
set_name=${1:-all}
cc=${CC:-gcc} cxx=${CXX:-g++}

# The groups of the table in each set.
case $set_name in
build) groups="build" ;;
demo) groups="build python" ;;
test) groups="build python test deb" ;;
bench) groups="build python bench" ;;
lint) groups="build python lint" ;;
deb) groups="build deb" ;;
wheel) groups="build python wheel" ;;
aarch64) groups="build aarch64" ;;
containers) groups="containers" ;;
readers) groups="readers" ;;
fresh) groups="fresh" ;;
kubernetes) groups="kubernetes" ;;
exporter) groups="build exporter" ;;
slurm) groups="build python slurm" ;;
all) groups="build python test bench lint deb wheel fresh" ;;
*)
    sed -n 's/^# usage: /usage: /p' "$0" >&2
    exit 2
    ;;
esac

# `readers`, `slurm`, `containers` and `kubernetes` are in no other set: Debian has promtool and Slurm in packages that start servers.
# A package itself is looked for only if dpkg-buildpackage checks for the package.
table() {
    cat << END
build    command ${cc%% *}                 gcc
build    command make                      make
build    command ar                        binutils
build    header  dlfcn.h                   libc6-dev
build    header  jansson.h                 libjansson-dev
build    header  curses.h                  libncurses-dev
build    header  gelf.h                    libelf-dev
build    header  elfutils/libdwfl.h        libdw-dev
python   command python3                   python3
headers  command python3                   python3
headers  module  ensurepip                 python3-venv
test     module  ensurepip                 python3-venv
test     command ${cxx%% *}                g++
test     header  cmocka.h                  libcmocka-dev
test     command ffmpeg                    ffmpeg
test     command pkg-config                pkg-config
test     command abidw                     abigail-tools
test     command man                       man-db
test     command script                    bsdutils
test     command setpriv                   util-linux
test     command pdfinfo                   poppler-utils
bench    command ${cxx%% *}                g++
bench    library libmimalloc.so.2          libmimalloc-dev
bench    command valgrind                  valgrind
lint     command clang-format              clang-format
lint     command clang-tidy                clang-tidy
lint     command cppcheck                  cppcheck
lint     command shellcheck                shellcheck
lint     command abidw                     abigail-tools
lint     header  cmocka.h                  libcmocka-dev
deb      package build-essential           build-essential
deb      command dpkg-buildpackage         dpkg-dev
deb      command lintian                   lintian
wheel    command ${cxx%% *}                g++
wheel    module  ensurepip                 python3-venv
wheel    header  zlib.h                    zlib1g-dev
wheel    header  bzlib.h                   libbz2-dev
wheel    header  lzma.h                    liblzma-dev
exporter header  microhttpd.h              libmicrohttpd-dev
aarch64  command aarch64-linux-gnu-gcc     gcc-aarch64-linux-gnu
aarch64  command aarch64-linux-gnu-gcc     libc6-dev-arm64-cross
aarch64  command qemu-aarch64              qemu-user
containers command podman                  podman
containers command runc                    runc
kubernetes command go                     golang-go
kubernetes package golang-google-grpc-dev golang-google-grpc-dev
kubernetes package golang-goprotobuf-dev  golang-goprotobuf-dev
kubernetes package golang-github-modern-go-reflect2-dev golang-github-modern-go-reflect2-dev
kubernetes package dpkg-dev               dpkg-dev
kubernetes command containerd             containerd
kubernetes command runc                   runc
kubernetes command etcd                   etcd-server
kubernetes package containernetworking-plugins containernetworking-plugins
kubernetes command ip                     iproute2
kubernetes command iptables               iptables
kubernetes command sysctl                 procps
kubernetes command curl                   curl
kubernetes command openssl                openssl
kubernetes module  yaml                   python3-yaml
containers package golang-github-containers-common golang-github-containers-common
containers command conmon                  conmon
readers  command promtool                  prometheus
slurm    command slurmctld                 slurm-wlm
slurm    command slurmd                    slurm-wlm
slurm    command munged                    munge
slurm    header  slurm/spank.h             libslurm-dev
slurm    command setpriv                   util-linux
fresh    command debootstrap               debootstrap
fresh    command git                       git
fresh    command unshare                   util-linux
END
    # The build dependencies of the Debian packages, from where dpkg-buildpackage reads them; not those of a profile.
    sed -n 's/^Build-Depends: //p' debian/control | tr ',' '\n' | sed '/</d; s/-compat//; s/(.*//' |
        while read -r package; do echo "deb package $package $package"; done
    # The tests of the report's page need a browser. Debian has it as a normal package; Ubuntu does not, and skips them.
    if grep -qs '^ID=debian$' /etc/os-release && ! command -v chromium-browser google-chrome google-chrome-stable > /dev/null; then
        echo "test command chromium chromium"
    fi
}

is_there() { # is_there KIND NAME
    local path
    case $1 in
    command) command -v "$2" > /dev/null ;;
    package) dpkg-query -W -f '${Status}' "$2" 2> /dev/null | grep -q 'ok installed' ;;
    module) python3 -c "import $2" 2> /dev/null ;;
    header) for path in /usr/include /usr/local/include /usr/include/*-linux-gnu; do [ -e "$path/$2" ] && return; done; return 1 ;;
    library) for path in /usr/lib /usr/local/lib /usr/lib/*-linux-gnu; do [ -e "$path/$2" ] && return; done; return 1 ;;
    esac
}

# The library takes CUDA's headers from 11.8 on; the simulated device takes CUDA 13's.
has_cuda_headers() {
    local folder
    for folder in ${CUDA_HOME:+"$CUDA_HOME"} /usr/local/cuda "$PWD/build/cuda" /usr; do
        grep -qs 'define CUDA_VERSION 13' "$folder/include/cuda.h" && return
    done
    return 1
}
wants_headers=
case " $groups " in *" build "*) has_cuda_headers || { wants_headers=yes; groups="$groups headers"; } ;; esac

missing=()
while read -r group kind name package; do
    case " $groups " in *" $group "*) ;; *) continue ;; esac
    case " ${missing[*]} " in *" $package "*) continue ;; esac
    is_there "$kind" "$name" || missing+=("$package")
done < <(table)

# Shows the progress of apt-get: each package is unpacked, then set up.
show_progress() {
    awk '/ newly installed/ { sub(/.*upgraded, /, ""); steps = 2 * $1 }
        /^(Unpacking|Setting up) / && steps { done++; tenth = int(10 * done / steps)
            if (tenth > shown) { shown = tenth; printf "  %d %% of %d packages\n", 10 * tenth, steps / 2; fflush() } }'
}
install_packages() {
    apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" < /dev/null 2> "$log" | show_progress
}
if [ ${#missing[@]} -gt 0 ]; then
    if ! command -v apt-get > /dev/null; then
        echo "missing: ${missing[*]} (names as in Debian); install them with this system's package manager" >&2
        exit 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        echo "missing packages; run: sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
    echo "installing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive LC_ALL=C
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    # Package lists are fetched only if the installed ones are not enough.
    install_packages "${missing[@]}" ||
        { apt-get update -qq < /dev/null 2> "$log" && install_packages "${missing[@]}"; } ||
        { tail -n 20 "$log" >&2; echo "could not install: ${missing[*]}" >&2; exit 1; }
fi

if [ -n "$wants_headers" ]; then
    echo "fetching the CUDA 13.0 headers from PyPI into build/cuda"
    scripts/cuda-headers.sh 13.0 "$PWD/build/cuda" || {
        echo "no CUDA 13 headers: none in /usr/local/cuda, and PyPI's nvidia-cuda-runtime could not be fetched; set CUDA_HOME" >&2
        exit 1
    }
fi
