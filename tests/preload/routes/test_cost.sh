#!/bin/bash
# What a process pays that does not use CUDA: it prints nothing, opens nothing, starts no thread, and takes at most 0.3 ms longer.
# alone: it measures time
# timeout: 400
. "$(dirname "$0")/../../lib.sh"

is "true prints nothing" "$(LD_PRELOAD=$LIB true 2>&1)" ""
is "nor with every option set, badly" \
    "$(LD_PRELOAD=$LIB GPUCACHE_LIMIT=nonsense GPUCACHE_MODE=x GPUCACHE_REPORT=$TMP/report GPUCACHE_TRACE=$TMP/trace \
        GPUCACHE_NO_SUCH=1 GPUCACHE_LOG=debug true 2>&1)" ""
is "and writes no file" "$(ls "$TMP")" ""
is "bash runs under the preload" "$(LD_PRELOAD=$LIB bash -c 'echo $((6 * 7)) | cat' 2>&1)" 42
ok "ldd shows no CUDA library" bash -c "! ldd '$LIB' | grep -Ei 'cuda|nvidia'"
ok "readelf shows no CUDA library" bash -c "! readelf -d '$LIB' | grep NEEDED | grep -Ei 'cuda|nvidia'"
ok "its exports are the table's, dlsym, dlvsym and gpucache_*" "$ROOT/scripts/check-exports.sh" "$LIB"

# Each of the two in turn, so that the machine's moods hit both alike. A busy machine gets more tries; the
# bound stays.
best=
for _ in 1 2 3; do
    measured=$("$BUILD_DIR/tests/preload/spawn_cost" 200 "$LIB" /bin/true)
    echo "# $measured"
    difference=${measured##* }
    if [ -z "$best" ] || [ "$difference" -lt "$best" ]; then best=$difference; fi
    [ "$best" -le 300000 ] && break
done
ok "costs at most 300000 ns more: $best ns" test "$best" -le 300000
done_testing
