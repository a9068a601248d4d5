#!/bin/bash
# The experiments on a machine with an NVIDIA GPU, in blocks (tests/gpu/experiments.py).
# usage: scripts/gpu.sh [--allow-missing] BLOCK [EXPERIMENT...]  builds what the block needs, runs it, prints its tables last
#        scripts/gpu.sh pack              here: makes build/gpu-carry, for a machine without headers, git or a compiler
#        scripts/gpu.sh collect FOLDER    takes the results in the folder into the project
# Results go to $OUT (default build/gpu). Exit status: 0 all holds; 1 a job failed or an assumption is wrong; 2 usage; 3 something
# is not shown, without --allow-missing. Needs make, a C compiler, python3 and CUDA's headers (11.8 or later); where one
# is lacking, build/gpu-carry. Of nvcc and Python's packages what is there. GPU_COMMIT names the commit where git cannot.
# GPU_REHEARSAL=1 runs the block on the simulated device.
set -u
cd "$(dirname "$0")/.." || exit 1
RESULTS=${OUT:-$PWD/build/gpu}
BUILD_DIR=${BUILD_DIR:-$PWD/build}
CARRY=$PWD/build/gpu-carry
CARRY_MIB_MAX=16 # beside the tree: together they stay well below 64 MiB
SECONDS_MAX=575  # of the whole command
GPU_COMMAND=${GPU_COMMAND:-"scripts/gpu.sh $*"}
unset OUT
export BUILD_DIR GPU_COMMAND PYTHONDONTWRITEBYTECODE=1
. scripts/gpu-env.sh

usage() {
    sed -n '2,9s/^# //p' "$0" >&2
    exit 2
}

# Headers that the library and the programs include, the library in both builds, the programs, the commit.
pack() {
    local home mib header
    rm -rf "$CARRY"
    mkdir -p "$CARRY/tests/gpu" "$CARRY/without-events" "$CARRY/include" || exit 1
    home=$(find_headers)
    [ -n "$home" ] || { echo "scripts/gpu.sh: no CUDA headers here; make deps fetches them" >&2; exit 1; }
    make -j"$(nproc)" CUDA_HOME="$home" NVCC= gpu-programs && build_without_events CUDA_HOME="$home" || exit 1
    cp "$BUILD_DIR/libgpucache.so" "$CARRY" && cp build/without-events/libgpucache.so "$CARRY/without-events" || exit 1
    find "$BUILD_DIR/tests/gpu" -maxdepth 1 -type f -perm -u+x -exec cp {} "$CARRY/tests/gpu" \; || exit 1
    find "$CARRY" -type f -exec strip --strip-debug {} + || exit 1
    includes "$home" -M | tr -s ' \134' '\n' |
        grep "^$home/include/" | while read -r header; do # those that the sources include
        install -D -m 644 "$header" "$CARRY/include/${header#"$home/include/"}" || exit 1
    done || exit 1
    python3 -c 'import sys; sys.path.insert(0, "tests/gpu"); import blocks; print(blocks.commit())' > "$CARRY/commit.new" &&
        mv "$CARRY/commit.new" "$CARRY/commit" || exit 1
    mib=$(du -sm "$CARRY" | cut -f1)
    echo "build/gpu-carry: $mib MiB, of commit $(cat "$CARRY/commit")"
    [ "$mib" -le $CARRY_MIB_MAX ] || { echo "scripts/gpu.sh: more than $CARRY_MIB_MAX MiB" >&2; exit 1; }
}

build_without_events() {
    make -j"$(nproc)" "$@" OUT=build/without-events CFLAGS='-O2 -g -DCONTEXT_EVENTS_SINCE=1000000' build/without-events/libgpucache.so
}

includes() { printf '#include <cuda.h>\n#include <cuda_runtime_api.h>\n' | "${CC:-gcc}" -E -I"$1/include" -x c "${@:2}" -; }
# The folder above include/cuda.h, with all that it includes: a toolkit's, one of Python's packages, or the carried one.
find_headers() {
    local home
    {
        printf '%s\n' "${CUDA_HOME:-}" /usr/local/cuda "$PWD/build/cuda" /usr
        python3 -c 'import glob, sys
for place in sys.path:
    for path in sorted(glob.glob(place + "/nvidia/*/include/cuda.h"), reverse=True): print(path[:-len("/include/cuda.h")])'
        echo "$CARRY"
    } | while read -r home; do
        [ -e "$home/include/cuda.h" ] || continue
        includes "$home" > /dev/null 2>&1 && echo "$home" && break
        echo "$home/include is not complete" >&2
    done
}

# A file that was not built is taken from what was carried.
take_carried() {
    local file
    [ -d "$CARRY" ] || return 0
    (cd "$CARRY" && find . -type f ! -path './include/*' ! -name commit) | while read -r file; do
        [ -e "$BUILD_DIR/$file" ] && continue
        echo "carried: $file"
        install -D "$CARRY/$file" "$BUILD_DIR/$file"
    done
}

build() {
    local nvcc capability home
    home=$(find_headers)
    if [ -n "$home" ]; then
        export CUDA_HOME=$home
        echo "CUDA's headers: $CUDA_HOME"
        if [ "$block" = 2 ]; then
            make -j"$(nproc)" build/libgpucache.so
        else # without NVCC: only what the C compiler builds. The blocks name what is not there
            make -k -j"$(nproc)" NVCC= gpu-programs
        fi
        [ "$block" != 3 ] || build_without_events
    else
        echo "there are no CUDA headers here"
    fi
    take_carried
    nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
    if [ "$block" = 1 ] && [ -x "$nvcc" ]; then # one experiment needs it; the others go on without
        capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -n 1 | tr -dc 0-9)
        "$nvcc" -rdc=true -arch="sm_${capability:-90}" -o "$BUILD_DIR/tests/gpu/device_launch" tests/gpu/nvcc/device_launch.cu \
            -lcudadevrt -ldl || echo "device_launch was not built"
    fi
    [ -e "$BUILD_DIR/libgpucache.so" ]
}

flags=()
while [ "${1:-}" = --allow-missing ]; do
    flags+=("$1")
    shift
done
block=${1:-}
case $block in
    collect) exec python3 tests/gpu/collect.py "${@:2}" ;;
    pack) pack && exit ;;
    [0-9]*) shift ;;
    *) usage ;;
esac
python3 tests/gpu/blocks.py --check "$block" "$RESULTS" "$@" || exit 2
mkdir -p "$RESULTS"
if [ -z "${GPU_REHEARSAL:-}" ]; then
    # LD_LIBRARY_PATH stays as it is: a toolkit's libraries before those of Python's packages could be others than they want.
    has_gpu || { echo "scripts/gpu.sh: there is no NVIDIA GPU here" >&2; exit 1; }
fi
if [ -z "${GPU_BUILT:-}" ] && ! build > "$RESULTS/build.txt" 2>&1; then
    tail -n 40 "$RESULTS/build.txt"
    echo "scripts/gpu.sh: the library was not built here; scripts/gpu.sh pack makes build/gpu-carry, to be carried along" >&2
    exit 1
fi
export GPU_BLOCK_SECONDS=${GPU_BLOCK_SECONDS:-$((SECONDS_MAX - SECONDS))}
exec python3 tests/gpu/blocks.py ${flags[@]+"${flags[@]}"} "$block" "$RESULTS" "$@"
