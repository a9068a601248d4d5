#!/bin/bash
# The runner: what it counts, and that what must fail does.
. "$(dirname "$0")/../lib.sh"

# run SCRIPT_BODY [ARGUMENT…]: the runner's output and status on a tree with that one test.
run() {
    local body=$1
    shift
    rm -rf "$TMP/tree"
    mkdir -p "$TMP/tree/tests/x"
    printf '#!/bin/bash\n%s\n' "$body" > "$TMP/tree/tests/x/test_x.sh"
    "$ROOT/tests/run" --root "$TMP/tree" --build "$TMP/tree/build" "$@" 2>&1
    echo "status $?"
}
# last NAME OUTPUT LINE STATUS
last() {
    is "$1" "$(printf '%s\n' "$2" | tail -n 2)" "$3
status $4"
}

last "passes are counted" "$(run 'echo 1..2; echo ok 1 - a; echo ok 2 - b')" "2 passed, 0 failed, 0 skipped" 0
output=$(run 'echo "ok 1 - a"; echo "not ok 2 - b"; echo "# detail"; echo 1..2; exit 1')
last "a failure is counted once" "$output" "1 passed, 1 failed, 0 skipped" 1
like "its output is shown" "$output" '\| # detail'
output=$(run 'echo "ok 1 - a # SKIP no device"; echo "ok 2 - b"; echo 1..2')
last "a skip is counted apart" "$output" "1 passed, 0 failed, 1 skipped" 0
like "a skip is listed with its reason" "$output" 'tests/x/test_x.sh: a: no device'
last "a skip is one whatever stands before it" "$(run 'echo 1..2; echo "not ok 1 # SKIP a"; echo ok 2 - b')" "1 passed, 0 failed, 1 skipped" 0
last "a whole file may be skipped" "$(run 'echo "1..0 # SKIP not here"')" "0 passed, 0 failed, 1 skipped" 0
last "a file that runs nothing fails" "$(run 'echo 1..0')" "0 passed, 1 failed, 0 skipped" 1
last "a silent file fails" "$(run 'exit 0')" "0 passed, 1 failed, 0 skipped" 1
last "one that ends early fails" "$(run 'echo "ok 1 - a"; exit 0')" "1 passed, 1 failed, 0 skipped" 1
last "one that reports fewer than planned fails" "$(run 'echo 1..3; echo "ok 1 - a"')" "1 passed, 1 failed, 0 skipped" 1
last "a bad exit status fails" "$(run 'echo 1..1; echo "ok 1 - a"; exit 3')" "1 passed, 1 failed, 0 skipped" 1
output=$(run 'echo 1..1; echo "ok 1 - a"; kill -SEGV $$')
last "a crash fails" "$output" "1 passed, 1 failed, 0 skipped" 1
like "and is named" "$output" 'SIGSEGV'
output=$(run '# timeout: 5
echo "ok 1 - a"; sleep 60')
last "a late one is ended and fails" "$output" "1 passed, 1 failed, 0 skipped" 1
last "no match is a failure" "$(run 'echo 1..1; echo ok' other)" "0 passed, 0 failed, 0 skipped" 1
last "words choose" "$(run 'echo 1..1; echo ok' test_x)" "1 passed, 0 failed, 0 skipped" 0
# shellcheck disable=SC2016 # the inner script expands it
is "settings of the machine do not reach tests" \
    "$(GPUCACHE_LIMIT=1 SIMCUDA_FAIL=x run 'echo 1..1; [ -z "${GPUCACHE_LIMIT-}${SIMCUDA_FAIL-}" ] && echo ok 1' | tail -n 1)" "status 0"
# ---- what runs at the same time ----

# together HEAD: two tests that wait for a third one, whose head is given.
together() {
    rm -rf "$TMP/tree"
    mkdir -p "$TMP/tree/tests/x"
    for name in a b; do
        printf '%s\n' '#!/bin/bash' '# timeout: 200' "for _ in {1..200}; do [ -e $TMP/tree/met ] && break; sleep 0.1; done" \
            "echo 1..1; [ -e $TMP/tree/met ] && echo ok" > "$TMP/tree/tests/x/test_$name.sh"
    done
    printf '%s\n' '#!/bin/bash' "$1" 'echo 1..1; echo ok' "touch $TMP/tree/met" > "$TMP/tree/tests/x/test_c.sh"
    "$ROOT/tests/run" --root "$TMP/tree" --build "$TMP/tree/build" 2>&1 | tail -n 1
}
is "a test that waits runs beside two others" "$(together '# waits: for somebody')" "3 passed, 0 failed, 0 skipped"
is "those with the longest time limit are first" "$(together '# timeout: 201')" "3 passed, 0 failed, 0 skipped"

# ---- switches and the tests that cannot run with them ----

# shellcheck disable=SC2016 # the inner script expands it
last "a switch reaches the tests" "$(run 'echo 1..1; [ "$SIMCUDA_A" = x ] && echo ok 1' --with SIMCUDA_A=x)" "1 passed, 0 failed, 0 skipped" 0
output=$(run '# without: SIMCUDA_A because of that
echo 1..1; exit 1' --with SIMCUDA_A=x)
last "a file may name a switch" "$output" "0 passed, 0 failed, 1 skipped" 0
like "  and its reason is shown" "$output" 'test_x.sh: of that$'
body='# without: SIMCUDA_A=x "b c" because of that
echo 1..2; echo ok 1 - a; echo not ok 2 - b c; exit 1'
last "a case may name a switch" "$(run "$body" --with SIMCUDA_A=x)" "1 passed, 0 failed, 1 skipped" 0
last "  with that value alone" "$(run "$body" --with SIMCUDA_A=y)" "1 passed, 1 failed, 0 skipped" 1
last "  and with no switch it fails" "$(run "$body")" "1 passed, 1 failed, 0 skipped" 1
last "  another case fails" "$(run "${body/b c;/b;}" --with SIMCUDA_A=x)" "1 passed, 1 failed, 0 skipped" 1
mkdir -p "$TMP/tree/tests/unit"
echo '/* a test nobody built */' > "$TMP/tree/tests/unit/test_y.c"
is "a program that was not built fails" \
    "$("$ROOT/tests/run" --root "$TMP/tree" --build "$TMP/tree/build" test_y | tail -n 1)" "0 passed, 1 failed, 0 skipped"
done_testing
