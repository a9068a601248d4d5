#!/bin/bash
# Tools that patch the driver's functions in place, as UCX's memory hooks do: the functions that they find begin with
# instructions which they can move, and a patched function sees every call, also those of the runtime.
. "$(dirname "$0")/../../lib.sh"
if [ "$(uname -m)" != x86_64 ]; then
    skip "patched functions" "the program patches code of x86-64"
    done_testing
fi
program=$BUILD_DIR/tests/preload/patched
export GPUCACHE_REPORT=none
is "all functions of UCX's list can be patched" "$(preloaded "$program" check 2>&1)" ""
for mode in cache track off; do
    for way in runtime driver; do
        is "mode $mode, $way: the patched functions see all calls" \
            "$(GPUCACHE_MODE=$mode preloaded timeout 60 "$program" $way 2>&1)" "wrong 0, seen 10 and 10"
    done
done
done_testing
