#!/bin/bash
# Builds the fuzzers of tests/fuzz with clang and runs each for FUZZ_SECONDS (30). New inputs stay in the
# build folder for later runs, as does each run's log and the input of a crash, which fails the run.
# usage: scripts/fuzz.sh [NAME…]
set -eu
shopt -s nullglob
cd "$(dirname "$0")/.." || exit 1
BUILD_DIR=${BUILD_DIR:-$PWD/build}
seconds=${FUZZ_SECONDS:-30}
command -v clang > /dev/null || { echo 'make fuzz: needs clang (apt-get install clang)' >&2; exit 1; }
out=$BUILD_DIR/fuzz
mkdir -p "$out"
flags=(-std=gnu11 -g -O1 "-fsanitize=fuzzer-no-link,address,undefined" -fno-sanitize-recover=undefined -I.
    "-I$BUILD_DIR/gen" "-DGC_VERSION=\"$(cat VERSION)\"")
objects=()
for source in core/*.c core/*/*.c core/*/*.S tools/*.c tools/*/*.c; do
    [ "$source" = tools/main.c ] && continue
    object=$out/${source//\//_}.o
    clang "${flags[@]}" -c -o "$object" "$source"
    objects+=("$object")
done
names=("$@")
[ ${#names[@]} -gt 0 ] || for source in tests/fuzz/fuzz_*.c; do
    name=${source##*/fuzz_}
    names+=("${name%.c}")
done
for name in "${names[@]}"; do
    clang "${flags[@]}" -fsanitize=fuzzer -o "$out/fuzz_$name" "tests/fuzz/fuzz_$name.c" "${objects[@]}" \
        -ljansson -lncursesw -ltinfo -ldw -lelf -lpthread -ldl -lm
    mkdir -p "$out/corpus/$name"
    if ! "$out/fuzz_$name" -max_total_time="$seconds" -max_len=8192 -dict="tests/fuzz/$name.dict" -print_final_stats=1 \
        -artifact_prefix="$out/$name-" "$out/corpus/$name" "tests/fuzz/corpus/$name" > "$out/$name.log" 2>&1; then
        tail -n 60 "$out/$name.log" >&2
        exit 1
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$name.log")
    edges=$(sed -n 's/^#[0-9]*\s*\(INITED\|DONE\) .*cov: \([0-9]*\) .*/\2/p' "$out/$name.log" | tr '\n' ' ')
    # shellcheck disable=SC2086 # two numbers
    printf 'fuzz_%s: %s s, %s inputs, edges reached: %s at first, %s at the end; nothing found\n' "$name" "$seconds" "$runs" $edges
done
