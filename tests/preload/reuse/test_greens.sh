#!/bin/bash
# A green context is a part of its device's primary one, but its default stream is another: with a driver that can mark
# all work of a context, and with one that cannot.
. "$(dirname "$0")/../../lib.sh"
greens() { preloaded "$@" timeout 60 "$BUILD_DIR/tests/preload/greens" "$way" 2>&1; }

export SIMCUDA_WORK_US=20000
for version in 13000 12040; do
    for way in default primary stream handle ordered; do
        [ "$version $way" = "12040 handle" ] && continue # streams are made for green contexts since 12.5
        is "driver $version, $way: what is given next is not what the other still works on" \
            "$(greens GPUCACHE_REPORT=none SIMCUDA_DRIVER_VERSION=$version)" "wrong 0"
    done
done
way=alone
is "a context that a green one holds" "$(greens GPUCACHE_LIMIT=1GiB GPUCACHE_REPORT="$TMP/r.json")" ""
is "goes with it, and its memory too" \
    "$(json "$TMP/r.json" '[d["context_bytes"]["peak"], d["context_bytes"]["current"], d["reserved_bytes"]["current"]]')" \
    "[$((64 << 20)), 0, 0]"
done_testing
