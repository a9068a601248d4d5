#!/bin/bash
# What goes on beside captures, and beside streams that wait for the host: memory comes and goes without growth, captures
# that spread survive, and no call waits that does not wait with the plain driver.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/capture_beside
export SIMCUDA_MEMORY=2GiB GPUCACHE_REPORT=none

for what in abandoned reborn elsewhere context spread held; do
    like "$what: the test itself is right, without the library" "$(simulated timeout 60 "$program" $what 2>&1)" '^done$'
    for options in GPUCACHE_MODE=track GPUCACHE_MODE=cache GPUCACHE_REUSE=sync GPUCACHE_BACKEND=driver; do
        like "$what, $options" "$(preloaded env $options timeout 60 "$program" $what 2>&1)" '^done$'
    done
done
# In each way in which the library learns that work is done, and on several devices.
for what in elsewhere spread; do
    for options in SIMCUDA_DRIVER_VERSION=11080 SIMCUDA_DRIVER_VERSION=12020 SIMCUDA_DEVICES=2; do
        like "$what: the test itself is right, $options" "$(simulated env $options timeout 60 "$program" $what 2>&1)" '^done$'
        for more in GPUCACHE_MODE=track GPUCACHE_MODE=cache GPUCACHE_REUSE=sync GPUCACHE_BACKEND=driver; do
            like "$what, $options, $more" "$(preloaded env $options $more timeout 60 "$program" $what 2>&1)" '^done$'
        done
    done
done
done_testing
