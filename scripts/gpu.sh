#!/bin/bash
# The experiments on a machine with an NVIDIA GPU, in blocks (tests/gpu/experiments.py).
# usage: scripts/gpu.sh BLOCK [EXPERIMENT...]  builds what the block needs, runs it, prints its tables last
#        scripts/gpu.sh collect FOLDER         takes the results in the folder into the project
# Results go to $OUT (default build/gpu). Needs a C compiler, make, python3 and CUDA's headers; of nvcc and Python's
# packages what is there. GPU_REHEARSAL=1 runs the block on the simulated device.
set -u
cd "$(dirname "$0")/.." || exit 1
RESULTS=${OUT:-$PWD/build/gpu}
BUILD_DIR=${BUILD_DIR:-$PWD/build}
unset OUT
export BUILD_DIR PYTHONDONTWRITEBYTECODE=1
. scripts/gpu-env.sh
block=${1:-}
case $block in
    collect) exec python3 tests/gpu/collect.py "${@:2}" ;;
    [0-9]*) shift ;;
    *) sed -n '2,6s/^# //p' "$0" >&2; exit 2 ;;
esac
mkdir -p "$RESULTS"
if [ -z "${GPU_REHEARSAL:-}" ]; then
    has_gpu || { echo "scripts/gpu.sh: there is no NVIDIA GPU here" >&2; exit 1; }
    use_toolkit_libraries
fi

build() {
    local headers
    if [ ! -e "${CUDA_HOME:-/usr/local/cuda}/include/cuda.h" ]; then # Python's packages of CUDA may have them
        headers=$(python3 -c 'import glob, sys
for place in sys.path:
    for path in glob.glob(place + "/nvidia/*/include/cuda.h"): print(path)' | tail -n 1)
        [ -z "$headers" ] || export CUDA_HOME="${headers%/include/cuda.h}"
    fi
    # Without NVCC: only what the C compiler builds. The blocks name what is not there.
    make -k -j"$(nproc)" NVCC= gpu-programs || [ -x "$BUILD_DIR/tests/gpu/entries" ] || return 1
    if [ "$block" = 3 ]; then
        make -j"$(nproc)" OUT=build/without-events CFLAGS='-O2 -g -DCONTEXT_EVENTS_SINCE=1000000' \
            build/without-events/libgpucache.so
    fi
    local nvcc
    nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
    if [ "$block" = 1 ] && [ -x "$nvcc" ]; then # one experiment needs it; the others go on without
        "$nvcc" -rdc=true -arch=sm_90 -o "$BUILD_DIR/tests/gpu/device_launch" tests/gpu/nvcc/device_launch.cu \
            -lcudadevrt -ldl || echo "device_launch was not built"
    fi
}
if [ -z "${GPU_BUILT:-}" ] && ! build > "$RESULTS/build.txt" 2>&1; then
    tail -n 40 "$RESULTS/build.txt"
    exit 1
fi
exec python3 tests/gpu/blocks.py "$block" "$RESULTS" "$@"
