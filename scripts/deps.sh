#!/bin/sh
# Installs what building, testing or checking needs and this machine lacks.
#
# usage: scripts/deps.sh [build|demo|test|bench|lint|deb|aarch64|readers|all]
#
# `readers` is in no other set: promtool, which Debian has in `prometheus` only, a package that starts a server.
#
# A set that is complete costs a few milliseconds and prints nothing. Missing Debian/Ubuntu packages are
# installed if we are root, else the one line to run is printed and the status is 1. Never asks anything.
# The CUDA headers come from CUDA_HOME, /usr/local/cuda, /usr/include, or, as a last resort, from the PyPI
# packages nvidia-cuda-runtime and nvidia-cuda-crt into build/cuda: headers are all that is needed.
set -eu
cd "$(dirname "$0")/.."
set_name=${1:-all}
missing=

# have_command PACKAGE COMMAND, have_header PACKAGE HEADER
have_command() {
    command -v "$2" > /dev/null 2>&1 || missing="$missing $1"
}
have_header() {
    for folder in /usr/include /usr/local/include /usr/include/*-linux-gnu; do
        [ -e "$folder/$2" ] && return 0
    done
    missing="$missing $1"
}

check_build() {
    have_command gcc "${CC:-gcc}"
    have_command make make
    have_command binutils ar
    have_header libc6-dev dlfcn.h
    have_header libjansson-dev jansson.h
    have_header libncurses-dev curses.h
    have_header libelf-dev gelf.h
    have_header libdw-dev elfutils/libdwfl.h
}
check_test() {
    have_header libcmocka-dev cmocka.h
    have_command python3 python3
    have_command ffmpeg ffmpeg
    have_command pkg-config pkg-config
    python3 -c 'import ensurepip, venv' 2> /dev/null || missing="$missing python3-venv"
    check_browser
}
check_bench() {
    have_command g++ "${CXX:-g++}"
    for folder in /usr/lib /usr/local/lib /usr/lib/*-linux-gnu; do
        [ -e "$folder/libmimalloc.so.2" ] && return 0
    done
    missing="$missing libmimalloc-dev"
}
check_deb() {
    have_command dpkg-dev dpkg-buildpackage
    have_command debhelper dh
    have_command lintian lintian
}
check_aarch64() {
    have_command gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
    have_command libc6-dev-arm64-cross aarch64-linux-gnu-gcc
    have_command qemu-user qemu-aarch64
}
check_lint() {
    have_command clang-format clang-format
    have_command clang-tidy clang-tidy
    have_command cppcheck cppcheck
    have_command shellcheck shellcheck
    have_command python3 python3
    have_command abigail-tools abidw
    have_header libcmocka-dev cmocka.h
}
# A browser for the report's page. On Debian it is a package like others; elsewhere its test is skipped without one.
check_browser() {
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$name" > /dev/null 2>&1 && return 0
    done
    grep -qs '^ID=debian$' /etc/os-release && missing="$missing chromium"
    return 0
}
check_readers() {
    have_command prometheus promtool
}
case $set_name in
build) check_build ;;
demo)
    check_build
    have_command python3 python3
    ;;
test)
    check_build
    check_test
    check_deb
    ;;
aarch64)
    check_build
    check_aarch64
    ;;
deb)
    check_build
    check_deb
    ;;
bench)
    check_build
    have_command python3 python3
    check_bench
    ;;
lint)
    check_build
    check_lint
    ;;
readers) check_readers ;;
all)
    check_build
    check_bench
    check_test
    check_lint
    check_deb
    have_command valgrind valgrind
    ;;
*)
    echo "usage: scripts/deps.sh [build|demo|test|bench|lint|deb|aarch64|readers|all]" >&2
    exit 2
    ;;
esac

if [ -n "$missing" ]; then
    # shellcheck disable=SC2086 # a list of words
    missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
    missing=${missing% }
    if ! command -v apt-get > /dev/null 2>&1; then
        echo "missing: $missing (names as in Debian); install them with this system's package manager" >&2
        exit 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        echo "missing packages; run: sudo apt-get install -y --no-install-recommends $missing" >&2
        exit 1
    fi
    echo "installing: $missing"
    export DEBIAN_FRONTEND=noninteractive
    # The package lists are fetched only where the installed ones do not do.
    # shellcheck disable=SC2086 # a list of words
    apt-get install -y -qq --no-install-recommends $missing < /dev/null > /dev/null 2>&1 ||
        { apt-get update -qq < /dev/null && apt-get install -y -qq --no-install-recommends $missing < /dev/null > /dev/null; } ||
        { echo "could not install: $missing" >&2; exit 1; }
fi

# ---- CUDA headers ----
# The library takes them from 11.8 on; the simulated device takes CUDA 13's.
for folder in ${CUDA_HOME:+"$CUDA_HOME"} /usr/local/cuda "$PWD/build/cuda" /usr; do
    if grep -qs 'define CUDA_VERSION 13' "$folder/include/cuda.h"; then exit 0; fi
done
have_command python3 python3
python3 -c 'import ensurepip, venv' 2> /dev/null || {
    echo "no CUDA 13 headers: set CUDA_HOME to a toolkit, or install python3-venv so that they can be fetched" >&2
    exit 1
}
echo "fetching the CUDA 13.0 headers from PyPI into build/cuda"
scripts/cuda-headers.sh 13.0 "$PWD/build/cuda" || {
    echo "no CUDA 13 headers: none in /usr/local/cuda, and PyPI's nvidia-cuda-runtime could not be had; set CUDA_HOME" >&2
    exit 1
}
