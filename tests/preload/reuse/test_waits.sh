#!/bin/bash
# What the library waits for, while other threads capture, or end the stream that is waited for: as without the library.
# timeout: 300
# waits: for work of seconds, and for the library to give up
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/waits
export SIMCUDA_MEMORY=1GiB GPUCACHE_REPORT=none

# same CASE: the program ends with the answers that it has without the library.
same() {
    local plain
    plain=$(simulated timeout 90 "$program" "$1" 2>&1; echo $?)
    like "$settings, $1: without the library" "$plain" '^(capture 0 0 0|wrong 0|refused 0|stream 2, request 2)$'
    is "$settings, $1: the same answers" "$(refusing preloaded timeout 90 "$program" "$1" 2>&1; echo $?)" "$plain"
}
for settings in "GPUCACHE_BACKEND=vmm" "GPUCACHE_BACKEND=driver" "SIMCUDA_DRIVER_VERSION=12040"; do
    export "${settings?}"
    for case in load pool global local foreign; do
        same $case
    done
    unset "${settings%%=*}"
done
# The library waits longer than a capture waits for it: the capture begins all the same, and nothing harms it.
settings="long work"
same long-global
export GPUCACHE_REUSE=sync
same long-free
unset GPUCACHE_REUSE
# A stream that cannot be made is refused at once, as without the library, and a request in its time.
for settings in GPUCACHE_BACKEND=vmm GPUCACHE_BACKEND=driver; do
    export "${settings?}" SIMCUDA_FAIL=cuStreamCreate@3+=CUDA_ERROR_OUT_OF_MEMORY
    same mutex
    unset SIMCUDA_FAIL GPUCACHE_BACKEND
done
# A slow event holds the end of the stream up where another thread looks for it.
export SIMCUDA_DRIVER_VERSION=12040 SIMCUDA_LATENCY=cuEventCreate=300000
settings="slow events"
same destroy
done_testing
