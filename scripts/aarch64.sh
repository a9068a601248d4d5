#!/bin/bash
# The library built for aarch64 with a cross compiler and checked like any build; core's unit tests run under qemu's user
# mode. cmocka and jansson for arm64 are fetched from Debian's archive into build/aarch64/root; the system's architectures
# do not change.
#
# Prints the reason and exits with 0 if a prerequisite is missing.
set -u
cd "$(dirname "$0")/.." || exit 1
out=build/aarch64
root=$PWD/$out/root
compiler=aarch64-linux-gnu-gcc

lacks() {
    echo "0 passed, 0 failed, 1 skipped: aarch64: $1"
    exit 0
}
for command in $compiler qemu-aarch64 apt-get dpkg-deb; do
    command -v "$command" > /dev/null || lacks "no $command; scripts/deps.sh aarch64 installs what is needed"
done

if ! [ -e "$root/usr/include/cmocka.h" ]; then
    mkdir -p "$root/lists/partial" "$root/cache/archives/partial"
    options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$root/lists"
        -o Dir::Cache="$root/cache" -o Dir::State::status=/dev/null -o APT::Sandbox::User=root)
    (cd "$root" && apt-get "${options[@]}" update && apt-get "${options[@]}" download libcmocka0 libcmocka-dev \
        libjansson4 libjansson-dev) > "$root/log" 2>&1 || lacks "cmocka for arm64 could not be fetched: $(tail -n 1 "$root/log")"
    for package in "$root"/*.deb; do dpkg-deb -x "$package" "$root" || exit 1; done
fi

echo "building for aarch64"
# The archive's headers stand in usr/include, where the cross compiler does not look.
make -j"$(nproc)" --no-print-directory OUT=$out CC="$compiler" CI=1 CFLAGS="-O2 -g -isystem $root/usr/include" \
    LDFLAGS="-L$root/usr/lib/aarch64-linux-gnu" $out/libgpucache.so $out/libgpucache-model.so core-test-programs > "$out/log" 2>&1 || {
    grep -A5 -E 'error|Error' "$out/log" | head -n 30
    echo "it does not build; all of it: $out/log"
    exit 1
}
BUILD_DIR=$PWD/$out scripts/check-exports.sh || exit 1

passed=0 failed=0 skipped=0
for program in "$out"/tests/{unit,model,faults}/test_*; do
    [ -x "$program" ] || continue
    case $program in *.d | *.o) continue ;; esac
    output=$(timeout 300 qemu-aarch64 -L /usr/aarch64-linux-gnu -E GC_TEST_EMULATED=1 \
        -E LD_LIBRARY_PATH="$root/usr/lib/aarch64-linux-gnu" "$program" 2> /dev/null)
    status=$?
    passed=$((passed + $(printf '%s\n' "$output" | grep '^ok' | grep -vc SKIP)))
    skipped=$((skipped + $(printf '%s\n' "$output" | grep -c 'ok.*# SKIP')))
    bad=$(printf '%s\n' "$output" | grep '^not ok' | grep -vc '# SKIP')
    [ "$bad" -gt 0 ] || [ $status -eq 0 ] || bad=1
    failed=$((failed + bad))
    [ "$bad" -eq 0 ] && continue
    echo "FAIL $program (status $status)"
    printf '%s\n' "$output" | grep -A4 '^not ok' | grep -v '# SKIP' | sed 's/^/    /'
done
echo "not built for aarch64: the tool, the simulated device, the programs under the library. Nothing ran on such a processor."
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
