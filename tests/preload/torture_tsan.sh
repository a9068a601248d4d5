#!/bin/bash
# The torture test with program, library and simulated device under the thread sanitizer, with either backend. Only linked
# symbols lead to the library there (scripts/rules.mk), so the runtime's calls are left out. Started by `make test-tsan`.
. "$(dirname "$0")/../lib.sh"
program=$BUILD_DIR/tests/preload/torture
sanitizer=$(ldd "$program" | sed -n 's/.*libtsan[^ ]* => \([^ ]*\).*/\1/p')
seed=${TORTURE_SEED:-$RANDOM}
if [ -z "$sanitizer" ]; then
    skip "the torture test under the thread sanitizer" "$program is not built with it"
    done_testing
fi
for backend in vmm driver; do
    output=$(env TSAN_OPTIONS="second_deadlock_stack=1 exitcode=66" TORTURE_DRIVER_ONLY=1 GPUCACHE_BACKEND=$backend \
        GPUCACHE_LIMIT=320MiB GPUCACHE_REPORT="$TMP/report.json" SIMCUDA_WORK_US=20 LD_LIBRARY_PATH="$SIM_DIR" \
        LD_PRELOAD="$sanitizer:$LIB" timeout 200 "$program" "${TORTURE_EVENTS:-1000000}" "${TORTURE_SECONDS:-15}" "$seed" 4 2>&1)
    is "$backend: no race, nothing corrupt, seed $seed" "$?" 0
    printf '%s\n' "$output" | head -150 | sed 's/^/# /'
    is "$backend: every block was freed" "$(json "$TMP/report.json" '[d["leak_count"], d["requested_bytes"]["current"]]')" '[0, 0]'
    is "$backend: the library had a part in it" "$(json "$TMP/report.json" 'd["hit_count"] > 100')" true
done
done_testing
