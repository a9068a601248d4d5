#!/bin/bash
# Half a minute of members that take turns while everything happens to them; `make storm` does so for half an hour. No wrong
# byte, never more on the device than the limit in force, nobody left waiting, accounts zero at the end.
# timeout: 400
. "$(dirname "$0")/../lib.sh"
out=$(TMPDIR=$TMP python3 "$ROOT/tests/soak/swap_storm.py" --seconds "${STORM_SECONDS:-30}" 2>&1)
status=$?
is "the storm ends well" "$status" 0
like "nothing was at fault" "$out" '^seed [0-9]+: [1-9][0-9]* requests, 0 faults$'
like "all members were there to the end" "$out" 'alive_at_the_end=8 '
for kind in kill limit stop; do
    like "it happened: $kind" "$out" "(^| )$kind=[1-9]"
done
[ "$status" -eq 0 ] || printf '%s\n' "$out" | sed 's/^/# /'
done_testing
