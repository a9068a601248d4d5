#!/bin/bash
# Memory that another context's queued work still reads is not reused when its owner frees it.
# without: SIMCUDA_PEERS=none "access: the copy has what was there" because its copies lean on peer access
# without: SIMCUDA_PEERS=none "disabled: the copy has what was there" because its copies lean on peer access
. "$(dirname "$0")/../../lib.sh"
export SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=1GiB SIMCUDA_WORK_US=3000 GPUCACHE_REPORT=none
for way in copy copy3d unified plain plain2d plain3d access disabled stream fill; do
    is "$way: the copy has what was there" "$(preloaded "$BUILD_DIR/tests/preload/peer_copy" $way 2>&1)" "wrong 0"
done
done_testing
