#!/bin/bash
# The steps of `make lint`; goes on after a failure and counts them.
# Needs: a finished build in BUILD_DIR, compile_commands.json. SHARE is that of scripts/tidy.py.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD_DIR=${BUILD_DIR:-$PWD/build}
export BUILD_DIR
failed=0
step() {
    local name=$1 start=$SECONDS output
    shift
    if output=$("$@" 2>&1); then
        printf '  %-15s ok (%d s)\n' "$name" $((SECONDS - start))
        [ -z "$output" ] || printf '%s\n' "$output" | sed 's/^/    /'
    else
        failed=$((failed + 1))
        printf '  %-15s FAILED\n' "$name"
        printf '%s\n' "$output" | sed 's/^/    /'
    fi
}
files() {
    git ls-files -co --exclude-standard "$@" | while read -r file; do [ -f "$file" ] && echo "$file"; done
}

format() { files '*.c' '*.h' | xargs -r clang-format --dry-run -Werror; }
tidy() { scripts/tidy.py "$BUILD_DIR/lint" ${SHARE:+"$SHARE"}; }
# No CUDA headers and no system headers: cppcheck knows libc, and the rest is clang-tidy's. Nothing generated either: the
# page's bytes alone take it half a minute.
cpp_check() {
    mkdir -p "$BUILD_DIR/cppcheck"
    cppcheck -q -j "$(nproc)" --std=c11 --language=c --enable=warning,performance,portability --inline-suppr \
        -i tools/engines/python/torch.cc --error-exitcode=1 --cppcheck-build-dir="$BUILD_DIR/cppcheck" -I. \
        --suppressions-list=scripts/cppcheck.txt core shim tools tests/simcuda tests/unit
}
shell() {
    { files '*.sh'; echo .ci/run; } | xargs -r shellcheck -x -e SC1091
}
python() {
    { files '*.py'; echo tests/run; echo tests/drivers; } | python3 -c '
import ast, sys
failed = 0
for path in sys.stdin.read().split():
    try:
        ast.parse(open(path, encoding="utf-8").read(), path)
    except (SyntaxError, UnicodeDecodeError) as error:
        print(f"{path}: {error}")
        failed = 1
sys.exit(failed)'
}
# Each generated table in a document is up to date.
tables() { scripts/tables.sh --check; }

step clang-format format
step clang-tidy tidy
step cppcheck cpp_check
step shellcheck shell
step python python
step layers scripts/check-layers.sh
step rooms scripts/check-rooms.py
step exports scripts/check-exports.sh
step interface scripts/check-abi.sh
step tables tables
step coverage tests/preload/routes/test_coverage.sh
[ $failed -eq 0 ] || echo "lint: $failed failed"
[ $failed -eq 0 ]
