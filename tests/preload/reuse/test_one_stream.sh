#!/bin/bash
# The time of the one stream ends without a wait, and safely; streams that never end delay no others. Each case hangs or
# fails where that is not so.
# timeout: 600
# waits: for streams that do not end
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/one_stream
export GPUCACHE_REPORT=$TMP/report.json SIMCUDA_WORK_US=3000 SIMCUDA_MEMORY=1GiB

mkdir "$TMP/cards"
echo 'int gc_test_card(void); int gc_test_card(void) { return 1; }' >"$TMP/cards/card.c"
"${CC:-gcc}" -shared -fPIC -o "$TMP/cards/libibverbs.so.1" "$TMP/cards/card.c"
cp "$TMP/cards/libibverbs.so.1" "$TMP/cards/libibverbs-1a2b3c4d.so.1.14"
echo 'int gc_test_card(void); int gc_test_user(void); int gc_test_user(void) { return gc_test_card(); }' >"$TMP/cards/user.c"
"${CC:-gcc}" -shared -fPIC -o "$TMP/cards/libuser.so" "$TMP/cards/user.c" "$TMP/cards/libibverbs.so.1" \
    -Wl,-rpath,"$TMP/cards"

run() {
    rm -f "$GPUCACHE_REPORT"
    preloaded timeout 20 "$program" "$@" 2>&1
    echo "$?"
}
for backend in vmm driver; do
    export GPUCACHE_BACKEND=$backend
    for case in work destroy capture context; do
        is "$backend, $case: nothing waits for work behind the free" "$(run $case | xargs)" "done 0"
    done
    for version in 11080 13000; do
        is "$backend, driver $version: a second stream's work waits for nothing" \
            "$(SIMCUDA_DRIVER_VERSION=$version run work | xargs)" "done 0"
    done
    for case in export flag token; do
        is "$backend, $case: the former life is over" "$(run $case | xargs)" "done 0"
    done
    is "$backend: a library of network cards is heeded" "$(run library "$TMP/cards/libibverbs.so.1" | xargs)" "done 0"
    is "$backend: so is a renamed copy" "$(run hidden "$TMP/cards/libibverbs-1a2b3c4d.so.1.14" | xargs)" "done 0"
    is "$backend: so is one that another library needs" "$(run library "$TMP/cards/libuser.so" | xargs)" "done 0"
    is "$backend: so is one that a thread loads which ends" "$(run hidden "$TMP/cards/libuser.so" | xargs)" "done 0"
    is "$backend: a thread that loads others and ends changes nothing" "$(run harmless "$BUILD_DIR/tests/preload/libnames.so" | xargs)" "done 0"
    is "$backend: the legacy stream orders blocking ones" "$(run legacy | xargs)" "done 0"
    for case in async closing thread plain mixed; do
        is "$backend, $case: an endless stream holds nobody up" "$(run $case | xargs)" "done 0"
        is "$backend, $case: all was freed" "$(json "$GPUCACHE_REPORT" 'd["requested_bytes"]["current"]')" 0
    done
done
export GPUCACHE_BACKEND=whole
is "whole, mixed: an endless stream holds nobody up" "$(run mixed | xargs)" "done 0"
is "whole, mixed: memory serves again" "$(json "$GPUCACHE_REPORT" 'd["reserved_bytes"]["peak"] < 100 << 20')" true
is "without the library the cards' programs run alike" "$(SIMCUDA_WORK_US=0 simulated timeout 20 "$program" work 2>&1)" "done"
done_testing
