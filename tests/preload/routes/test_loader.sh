#!/bin/bash
# A thread's first calls and its end go on while another thread holds the dynamic linker's lock: a constructor that waits for it.
# What takes that lock is where scripts/check-layers.sh allows it; here each setting shows that no way of the thread's leads there.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/loader
library=$BUILD_DIR/tests/preload/libwaits.so
export GPUCACHE_REPORT=none
echo '{"tensors": [{"name": "w", "dtype": "F16", "shape": [1024, 1024]}]}' > "$TMP/model.json"

plain=$(simulated timeout 60 "$program" "$library" 2>&1)
like "without the library" "$plain" '^loaded$'
for settings in GPUCACHE_MODE=cache GPUCACHE_MODE=track GPUCACHE_MODE=off GPUCACHE_STACKS=all GPUCACHE_STACKS=leaks GPUCACHE_LIMIT=1G GPUCACHE_REUSE=sync GPUCACHE_BACKEND=driver GPUCACHE_DEBUG=poison \
    GPUCACHE_TENANTS=a=loader:1G "GPUCACHE_TENANTS=a=*:1G" "GPUCACHE_MODEL=$TMP/model.json GPUCACHE_LOG=error" "GPUCACHE_GROUP=g$$ GPUCACHE_GROUP_LIMIT=1G" "GPUCACHE_TRACE=$TMP/trace"; do
    # shellcheck disable=SC2086 # several settings
    is "$settings" "$(preloaded $settings timeout 60 "$program" "$library" 2>&1)" "$plain"
done
done_testing
