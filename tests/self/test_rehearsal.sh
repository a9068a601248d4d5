#!/bin/bash
# The blocks of scripts/gpu.sh on the simulated device, each to its table; an odd device's wrong assumptions are named.
# alone: it times calls
# timeout: 300
. "$(dirname "$0")/../lib.sh"
unset OUT
# rehearse BLOCK [EXPERIMENT...]: its tables, its exit status in $status.
rehearse() {
    tables=$(OUT=$TMP GPU_REHEARSAL=1 GPU_BUILT=1 BUILD_DIR=$BUILD_DIR timeout 120 "$ROOT/scripts/gpu.sh" "$@" 2>&1)
    status=$?
}
# Assumptions about speed are no test of this machine.
wrong() { printf '%s\n' "$tables" | grep 'WRONG' | grep -Evc 'under 50 us|under 0.1 s|overlap'; }
# Each assumption's file exists, and the sum of the blocks' minutes leaves time to start the machines.
ok "the tables name files of the project" python3 - "$ROOT" << 'END'
import os, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1] + "/tests/gpu")
from experiments import ASSUMPTIONS, BLOCKS, PAIRS
for file in [row.file for row in ASSUMPTIONS] + [pair[4] for pair in PAIRS]:
    assert os.path.exists(os.path.join(sys.argv[1], file)), file
assert sum(block[1] for block in BLOCKS.values()) <= 26
END
for block in 1 2 3 4; do
    rehearse $block
    like "block $block runs to its last line" "$tables" "^block $block: [0-9.]+ s, [0-9]+ jobs, 0 failed"
    printf '%s\n' "$tables" | sed -n 's/^| \(E[0-9]*\) | \(.*\) | .* | skipped; /# not rehearsed: \1 \2: /p'
    case $block in # known differences of the simulated device
        1) is "block 1: the tokens of mapped memory alone" "$(wrong)" 1 ;;
        *) is "block $block: no wrong assumption" "$(wrong)" 0 ;;
    esac
done
odd() { # odd NAME BLOCK EXPERIMENT REGEX: an assumption is wrong, by experiment and file
    rehearse "$2" "$3"
    is "$1: the exit status says so" "$status" 1
    like "$1: experiment and file are named" "$tables" "^\| $3 .* WRONG.*$4"
}
SIMCUDA_LOOKUPS=apart odd "look-ups apart" 1 E1 'differ\.flags0.*settings\.c'
SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=16GiB SIMCUDA_PEERS=none odd "no peers" 1 E1 'peers\.0\.1.*driver_map\.c'
SIMCUDA_RDMA=once odd "RDMA at one address" 1 E2 'rdma1.*backend\.c'
SIMCUDA_RDMA=refused odd "no RDMA" 1 E2 'rdma1.*backend\.c'
SIMCUDA_LAZY=64MiB odd "lazy memory" 4 E11 'first_launch.*settings\.c'
ok "a rehearsal is no measurement" bash -c "! '$ROOT/scripts/gpu.sh' collect '$TMP' 2>&1 | grep -v 'is a rehearsal'"
done_testing
