#!/bin/bash
# The binary interface of core/gpucache.h beside the one that is on record, scripts/gpucache.abi: functions, layouts,
# values. Whatever differs is shown. `--update` records what was added; what breaks programs that were built before is
# refused, unless the soname (scripts/rules.mk) has been raised.
# Needs abidw and abidiff (Debian: abigail-tools).
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD_DIR=${BUILD_DIR:-$PWD/build}
record=scripts/gpucache.abi
soname=$(sed -n 's/^SONAME := //p' scripts/rules.mk)
work=$BUILD_DIR/abi
mkdir -p "$work" || exit 1

# A library of nothing but the header's functions: their types are all that is looked at.
cat > "$work/gpucache.c" << 'END'
#pragma GCC visibility push(default)
#include "core/gpucache.h"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define DEFINE(result, name, parameters) result name parameters { __builtin_trap(); }
GPUCACHE_FUNCTIONS(DEFINE)
END
"${CC:-gcc}" -std=gnu11 -g -O0 -fPIC -shared -I. -Wl,-soname,"$soname" -o "$work/gpucache.so" "$work/gpucache.c" || exit 1
abidw --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed --drop-private-types --headers-dir core \
    --type-id-style hash --out-file "$work/gpucache.abi" "$work/gpucache.so" || exit 1

difference=$(abidiff --no-show-locs "$record" "$work/gpucache.abi")
status=$?
[ $status -ne 0 ] || exit 0
if [ "${1:-}" != --update ]; then
    printf '%s\n' "$difference"
    echo "gpucache.h differs from $record; scripts/check-abi.sh --update records what was added"
    exit 1
fi
# Bit 3 of abidiff's status: incompatible whatever a program does. A structure may grow at its end, it tells its size.
moved=$(printf '%s\n' "$difference" | grep -E 'offset changed|deletion|type changed from')
if { [ $((status & 8)) -ne 0 ] || [ -n "$moved" ]; } && grep -q "soname='$soname'" "$record"; then
    printf '%s\n' "$difference"
    echo "this breaks programs that were built before: raise SONAME in scripts/rules.mk, or keep what was"
    exit 1
fi
cp "$work/gpucache.abi" "$record"
