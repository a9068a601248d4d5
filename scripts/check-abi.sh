#!/bin/bash
# The binary interface of core/gpucache.h beside the one that is on record: functions and layouts in scripts/gpucache.abi,
# the constants that programs are built with in scripts/gpucache.values. Whatever differs is shown. `--update` records what was added; what breaks programs that were built before is
# refused, unless the soname (scripts/rules.mk) has been raised.
# Needs abidw and abidiff (Debian: abigail-tools).
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD_DIR=${BUILD_DIR:-$PWD/build}
record=scripts/gpucache.abi
values=scripts/gpucache.values
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

# The header's constants, macros and enumerators, each as the compiler has it. GPUCACHE_API_VERSION is there to change.
{
    printf '#include "core/gpucache.h"\n#include <stdio.h>\nint main(void) {\n'
    printf '#define STATUS(name, value, text) printf("%%s %%lld\\n", #name, (long long)name);\nGPUCACHE_STATUSES(STATUS)\n'
    sed -n 's/^#define \(GPUCACHE_[A-Z_]*[A-Z]\) .*/\1/p' core/gpucache.h | grep -vx GPUCACHE_API_VERSION |
        sed 's/.*/printf("%s %lld\\n", "&", (long long)(&));/'
    printf 'return 0; }\n'
} > "$work/values.c"
"${CC:-gcc}" -std=gnu11 -I. -o "$work/values" "$work/values.c" && "$work/values" | LC_ALL=C sort > "$work/gpucache.values" || exit 1

difference=$(abidiff --no-show-locs "$record" "$work/gpucache.abi")
status=$?
# Lines of the record alone: what is gone, or has another value.
changed=$(LC_ALL=C comm -23 "$values" "$work/gpucache.values")
[ $status -ne 0 ] || ! cmp -s "$values" "$work/gpucache.values" || exit 0
if [ "${1:-}" != --update ]; then
    printf '%s\n' "$difference"
    diff "$values" "$work/gpucache.values"
    echo "gpucache.h differs from $record or $values; scripts/check-abi.sh --update records what was added"
    exit 1
fi
# Bit 3 of abidiff's status: incompatible in any case. A structure may grow at its end, since it contains its size.
moved=$(printf '%s\n' "$difference" | grep -E 'offset changed|deletion|type changed from|from value|^ *type of ')
if { [ $((status & 8)) -ne 0 ] || [ -n "$moved$changed" ]; } && grep -q "soname='$soname'" "$record"; then
    printf '%s\n' "$difference" "$changed"
    echo "this breaks programs that were built before: raise SONAME in scripts/rules.mk, or keep what was"
    exit 1
fi
cp "$work/gpucache.abi" "$record" && cp "$work/gpucache.values" "$values"
