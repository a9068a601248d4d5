#!/bin/bash
# Memory that work of another context may reach, however it is named, is not reused when its owner frees it.
# timeout: 300
# waits: for work of 20 ms
# without: SIMCUDA_PEERS=none "a context of device 1, values" because a device writes to another's memory
# without: SIMCUDA_PEERS=none "a context of device 1, value-node" because a device writes to another's memory
. "$(dirname "$0")/../../lib.sh"
export SIMCUDA_ATTRIBUTES=136=4,137=4194304 SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=1GiB SIMCUDA_WORK_US=20000 GPUCACHE_REPORT=none
reach() { preloaded timeout 60 "$BUILD_DIR/tests/preload/reach" "$@" 2>&1; }

for device in 0 1; do
    for way in copy-node copy-set copy-exec-set copy-updated copy-child copy-any copy-any-set fill-node fill-set fill-exec-set \
        captured forked values value-node; do
        is "a context of device $device, $way" "$(reach $way $device)" "wrong 0"
    done
    # Its copies take longer than all else, and are more than are looked at one by one.
    is "a context of device $device, a long list" "$(SIMCUDA_WORK_US=200 reach batch $device)" "wrong 0"
    # Only what the driver allocated can be decompressed into.
    is "a context of device $device, decompression" "$(GPUCACHE_BACKEND=driver reach unpack $device)" "wrong 0"
    is "a context of device $device, a list without end" "$(reach endless $device)" "error 1 wrong 0"
done
for maker in cuda gl vdpau; do
    is "a context made for $maker that allocates nothing: its default stream is another one" "$(reach fill 0 $maker)" "wrong 0"
done
done_testing
