#!/bin/bash
# Tables in documents that come from a list in the sources. Without an argument writes them, with --check lists
# the stale ones. A table stands between `<!-- NAME begin … -->` and `<!-- NAME end -->`.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD_DIR=${BUILD_DIR:-$PWD/build}
mode=${1:-write}
status=0

# table FILE NAME COMMAND…
table() {
    local file=$1 name=$2 fresh
    shift 2
    fresh=$(mktemp)
    if ! "$@" > "$fresh.body"; then
        echo "$file: no $name: $* failed"
        rm -f "$fresh" "$fresh.body"
        status=1
        return
    fi
    awk -v name="$name" -v body="$fresh.body" '
        index($0, "<!-- " name " begin") { print; while ((getline line < body) > 0) print line; inside = 1; seen = 1; next }
        index($0, "<!-- " name " end") { inside = 0 }
        !inside { print }
        END { exit seen ? 0 : 1 }' "$file" > "$fresh" || { echo "$file: has no table $name"; status=1; }
    if [ "$mode" = --check ]; then
        diff -u "$file" "$fresh" > "$fresh.diff" ||
            { echo "$file: table $name is stale; run scripts/tables.sh"; cat "$fresh.diff"; status=1; }
    else
        cmp -s "$file" "$fresh" || cp "$fresh" "$file"
    fi
    rm -f "$fresh" "$fresh.body" "$fresh.diff"
}

table docs/options.md options scripts/options-table.py
table tools/man/libgpucache.7 options scripts/options-table.py --man
exit $status
