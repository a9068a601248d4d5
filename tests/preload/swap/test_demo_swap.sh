#!/bin/bash
# A short run of what `make demo-swap` shows: without overcommit there is no room for three servers, with it all answer, and
# the picture is a well-formed one. All three come and go, wholly or in part.
# timeout: 300
. "$(dirname "$0")/../../lib.sh"
out=$(env -u GPUCACHE_LEDGER TMPDIR="$TMP" python3 "$ROOT/demo/swap.py" --build "$BUILD_DIR" --seconds 5 --output "$TMP/who.svg" 2>&1)
status=$?
is "the demo is as it should be" "$status" 0
[ "$status" -eq 0 ] || printf '%s\n' "$out" | sed 's/^/# /'
without=$(printf '%s\n' "$out" | sed '/^WITH GPU/,$d')
like "without, there is no room" "$without" '^  (bob|carol) +out of memory'
like "and a line says why" "$without" '^ +gpucache: device 0: [0-9.]+ MiB refused: limit .* of group demo .*, live .* would have done$'
is "with, nobody complains" "$(printf '%s\n' "$out" | sed '1,/^WITH GPU/d' | grep gpucache: )" ""
for name in alice bob carol; do
    like "with, $name answers" "$(printf '%s\n' "$out" | sed '1,/^WITH GPU/d')" "^  $name +[1-9][0-9]* answers, [1-9][0-9]* right"
    like "$name has come and gone" "$(printf '%s\n' "$out" | sed '1,/^WHOSE/d')" "^  $name .*(█.*[▒·]|[▒·].*█)"
done
ok "the picture is XML" python3 -c 'import sys, xml.dom.minidom as m; assert m.parse(sys.argv[1]).documentElement.tagName == "svg"' "$TMP/who.svg"
done_testing
