# Helpers for test scripts, for bash: `. "$(dirname "$0")/../lib.sh"` at the top, `done_testing` at the end.
# Prints TAP on stdout. A script that ends before done_testing has failed.
#
# Gives: ROOT, BUILD_DIR, SIM_DIR, LIB, TOOL, TMP (a folder of this run, removed at exit).
# shellcheck shell=bash disable=SC2034
set -u
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD_DIR=${BUILD_DIR:-$ROOT/build}
SIM_DIR=$BUILD_DIR/simcuda
LIB=$BUILD_DIR/libgpucache.so
TOOL=$BUILD_DIR/gpucache
# Without a folder of its own a script would write below /.
TMP=$(mktemp -d "${TMPDIR:-/tmp/gpucache-test.}${TMPDIR:+/}XXXXXX") || exit 1
trap 'rm -rf "$TMP"' EXIT
export GPUCACHE_LEDGER=${GPUCACHE_LEDGER-$TMP/ledger} # tests do not share a ledger
tap_count=0
tap_failed=0

# ok NAME COMMAND…: passes if the command succeeds; its output is shown if it does not.
ok() {
    local name=$1 output status
    shift
    output=$("$@" 2>&1)
    status=$?
    tap_count=$((tap_count + 1))
    if [ $status -eq 0 ]; then
        echo "ok $tap_count - $name"
        return 0
    fi
    tap_failed=$((tap_failed + 1))
    echo "not ok $tap_count - $name"
    echo "# exit status $status of: $*"
    [ -z "$output" ] || printf '%s\n' "$output" | sed 's/^/# /'
    return 1
}

# not_ok NAME COMMAND…: passes if the command fails by its exit status, not by a signal.
not_ok() {
    local name=$1
    shift
    ok "$name" fails_plainly "$@"
}
fails_plainly() {
    local output status
    output=$("$@" 2>&1)
    status=$?
    [ $status -ne 0 ] && [ $status -lt 128 ] && return 0
    echo "exit status $status, wanted 1 to 127"
    printf '%s\n' "$output"
    return 1
}

# is NAME GOT WANT: passes if both are the same text.
is() {
    tap_count=$((tap_count + 1))
    if [ "$2" = "$3" ]; then
        echo "ok $tap_count - $1"
        return 0
    fi
    tap_failed=$((tap_failed + 1))
    echo "not ok $tap_count - $1"
    printf '%s\n' "got:" "$2" "want:" "$3" | sed 's/^/# /'
    return 1
}

# like NAME GOT REGEX: passes if the text has a line that the extended regular expression matches.
like() {
    tap_count=$((tap_count + 1))
    if printf '%s\n' "$2" | grep -Eq -- "$3"; then
        echo "ok $tap_count - $1"
        return 0
    fi
    tap_failed=$((tap_failed + 1))
    echo "not ok $tap_count - $1"
    printf '%s\n' "nothing matches: $3" "in:" "$2" | sed 's/^/# /'
    return 1
}

# skip NAME REASON: counts a test that cannot run here.
skip() {
    tap_count=$((tap_count + 1))
    echo "ok $tap_count - $1 # SKIP $2"
}

# simulated COMMAND…: runs it on the simulated device. preloaded COMMAND…: the same, under the library.
simulated() {
    env LD_LIBRARY_PATH="$SIM_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
}
preloaded() {
    env LD_LIBRARY_PATH="$SIM_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" LD_PRELOAD="$LIB" "$@"
}

# without_refusals: stdin without the library's lines about refused requests, for tests whose requests are refused on purpose.
without_refusals() {
    sed -E '/^gpucache: device [0-9]+: [0-9.]+ [A-Za-z]+ refused: /d'
}

# refusing COMMAND…: runs it; its stderr has none of those lines.
refusing() {
    {
        "$@" 2>&1 >&3 | without_refusals >&2
        return "${PIPESTATUS[0]}"
    } 3>&1
}

# json FILE EXPRESSION: evaluates a Python expression over the file's object `r` (and `d`: its first device).
json() {
    python3 -c '
import json, sys
r = json.load(open(sys.argv[1]))
d = r["devices"][0] if r.get("devices") else None
value = eval(sys.argv[2])
print(value if isinstance(value, str) else json.dumps(value, sort_keys=True))' "$1" "$2"
}

# Prints the plan and ends the script: with 1 if anything failed.
done_testing() {
    if [ $tap_count -eq 0 ]; then
        echo "# no test was done"
        exit 1
    fi
    echo "1..$tap_count"
    [ $tap_failed -eq 0 ]
    exit
}
