#!/bin/bash
# Mapped memory does not fragment: whatever was taken and freed before, a request succeeds whenever what is left of the
# limit, in pages of 2 MiB, is enough for it.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/fragment
report=$TMP/report.json
for limit in 200 512 1000; do
    for seed in 1 $RANDOM; do
        output=$(GPUCACHE_BACKEND=vmm GPUCACHE_LIMIT=${limit}MiB GPUCACHE_REPORT=$report preloaded "$program" 3000 "$seed" 2>&1)
        is "limit $limit MiB, seed $seed: what fits is given" "$?" 0
        echo "# ${output//$'\n'/$'\n'# }"
        is "limit $limit MiB, seed $seed: by mapped memory" "$(json "$report" 'd["driver_calls"].get("cuMemMap", 0) > 0')" true
        is "limit $limit MiB, seed $seed: the limit held" "$(json "$report" 'd["reserved_bytes"]["peak"] <= d["limit_bytes"]')" true
        tight=$(echo "$output" | sed -n 's/.*tight \([0-9]*\).*/\1/p')
        ok "limit $limit MiB, seed $seed: ${tight:-0} requests were for all that was left" test "${tight:-0}" -gt 50
    done
done
done_testing
