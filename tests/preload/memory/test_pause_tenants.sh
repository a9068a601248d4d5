#!/bin/bash
# Pause and resume of tenants by the API: two take turns in one process, others go on, who uses what is away waits.
# timeout: 240
. "$(dirname "$0")/../../lib.sh"
export SIMCUDA_MEMORY=512MiB GPUCACHE_REPORT=none
program=$BUILD_DIR/tests/preload/pause_tenants
simulated "$BUILD_DIR/tests/preload/public_api" has_mapping "$LIB" > /dev/null 2>&1
if [ $? -eq 77 ]; then
    skip "pause of tenants" "the library does not map memory on this device"
    done_testing
fi
for case in turns threads process pins; do
    output=$(refusing preloaded timeout 100 "$program" $case 2>&1)
    is "$case" "$output exit $?" " exit 0"
done
done_testing
