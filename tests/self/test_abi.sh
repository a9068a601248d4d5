#!/bin/bash
# scripts/check-abi.sh sees what would break programs that were built before, and does not record it.
. "$(dirname "$0")/../lib.sh"
if ! command -v abidw > /dev/null || ! command -v abidiff > /dev/null; then
    skip "the interface beside its record" "abidw and abidiff are not installed"
    done_testing
fi
tree=$TMP/tree
mkdir -p "$tree/core" "$tree/scripts"
cp "$ROOT"/scripts/{check-abi.sh,gpucache.abi,gpucache.values,rules.mk} "$tree/scripts"
check() { BUILD_DIR=$TMP/build "$tree/scripts/check-abi.sh" "$@"; }
header() { # header SED…: the header so changed
    sed "$@" "$ROOT/core/gpucache.h" > "$tree/core/gpucache.h"
}
header ''
ok "as it is on record" check
header "\$a #define GPUCACHE_MORE 7"
not_ok "a constant more is shown" check
ok "and recorded" check --update
ok "once" check
cp "$ROOT"/scripts/gpucache.values "$tree/scripts"
breaks() { # breaks WHAT SED…
    local what=$1
    shift
    header "$@"
    not_ok "the test changes $what" cmp -s "$ROOT/core/gpucache.h" "$tree/core/gpucache.h"
    not_ok "$what is seen" check
    not_ok "$what is not recorded" check --update
}
breaks "a macro's value" 's/^\(#define GPUCACHE_MODE_TRACK\) 1/\1 5/'
breaks "a macro's name" 's/^#define GPUCACHE_WAIT_NONE /#define GPUCACHE_WAIT_NOTHING /'
breaks "an enumerator's value" 's/X(GPUCACHE_DISABLED, 2,/X(GPUCACHE_DISABLED, 77,/'
breaks "a field's type" 's/uint64_t is_paused;/uint32_t is_paused;/'
done_testing
