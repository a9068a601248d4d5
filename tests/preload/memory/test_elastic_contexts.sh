#!/bin/bash
# Elastic pools end while contexts come and go in another thread: no call fails.
. "$(dirname "$0")/../../lib.sh"
for backend in vmm driver; do
    ok "backend $backend" preloaded GPUCACHE_BACKEND=$backend GPUCACHE_REPORT=none timeout 60 \
        "$BUILD_DIR/tests/preload/elastic_contexts" 3
done
done_testing
