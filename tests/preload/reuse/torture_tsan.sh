#!/bin/bash
# The torture test with program, library and simulated device under the thread sanitizer. Only linked symbols lead to the
# library there (scripts/rules.mk), so the runtime's calls are left out. Started by `make test-tsan`.
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/torture
sanitizer=$(ldd "$program" | sed -n 's/.*libtsan[^ ]* => \([^ ]*\).*/\1/p')
seed=${TORTURE_SEED:-$RANDOM}
if [ -z "$sanitizer" ]; then
    skip "the torture test under the thread sanitizer" "$program is not built with it"
    done_testing
fi
ok "no race, nothing wrong, seed $seed" env TSAN_OPTIONS="second_deadlock_stack=1 exitcode=66" LIB="$sanitizer:$LIB" \
    "$ROOT/tests/preload/reuse/torture.py" --seconds "${TORTURE_SECONDS:-30}" --seed "$seed" --without runtime
done_testing
