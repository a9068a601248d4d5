#!/bin/bash
# A few seconds of the soak, all features on: `make soak` runs an hour of it. The accounts of the program, the library and the
# device agree at every check. Whether anything grows takes longer to see.
# timeout: 300
. "$(dirname "$0")/../lib.sh"
out=$(TMPDIR=$TMP python3 "$ROOT/tests/soak/soak.py" --build "$BUILD_DIR" --seconds 10 2>&1)
status=$?
is "the soak ends well" "$status" 0
like "it was checked, and nothing was at fault" "$out" '^[1-9][0-9]* checks, 0 faults$'
like "it was paused from outside" "$out" '"pause done": [1-9]'
for kind in limit plan resume top trim; do
    like "from outside: $kind" "$out" "\"$kind done\": [1-9]"
done
for worker in blocks graph elastic tenant ways context threads plugin child; do
    like "it did some: $worker" "$out" "\"$worker\": [1-9]"
done
[ "$status" -eq 0 ] || printf '%s\n' "$out" | sed 's/^/# /'
done_testing
