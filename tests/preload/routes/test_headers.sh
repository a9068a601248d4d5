#!/bin/bash
# The library builds without a warning with older CUDA headers, and is the same to the outside: entry points those
# headers lack are declared from the table. Core, which no CUDA header reaches, is linked as it is built.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"

exports() { nm -D --defined-only "$1" | awk '{print $NF}' | sort; }

for version in 11.8 12.4; do
    toolkit=$ROOT/build/cuda-$version
    if ! "$ROOT/scripts/cuda-headers.sh" $version "$toolkit" > "$TMP/log" 2>&1; then
        skip "headers $version" "could not be fetched from PyPI: $(tail -n 1 "$TMP/log")"
        continue
    fi
    out=build/with-$version
    core=$BUILD_DIR/obj/preloaded.a
    ok "headers $version: builds, warnings being errors" \
        make -C "$ROOT" -s --no-print-directory CI=true CUDA_HOME="$toolkit" OUT=$out \
        PRELOADED_ARCHIVE="$core" --old-file="$core" $out/libgpucache.so
    is "headers $version: exports the same" "$(exports "$ROOT/$out/libgpucache.so")" "$(exports "$LIB")"
done
done_testing
