#!/bin/bash
# tests/drivers --share: the part that a run takes changes from run to run, however many commits lie between two of them, and is
# the commit's.
. "$(dirname "$0")/../lib.sh"
here=$(cd "$(dirname "$0")/.." && pwd)
command -v git > /dev/null || { echo "1..0 # SKIP there is no git"; exit 0; }
mkdir -p "$TMP/tree/tests/preload" && cp "$here/drivers" "$TMP/tree/tests/" && cd "$TMP/tree" || exit 1
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' GIT_CONFIG_GLOBAL=/dev/null
git init -q .
commit() { git -c user.name=a -c user.email=a@example.com commit -q --allow-empty -m "$1"; }
part() { python3 tests/drivers --share 4 no-such-test | sed -n 's/^part \([0-9]*\) of 4, by the .*/\1/p'; }

# Four commits at a time, as many as there are parts.
for run in {1..16}; do
    for number in 1 2 3 4; do
        commit "$run $number"
    done
    part
done > "$TMP/parts"
is "sixteen runs, four commits apart, take every part" "$(sort -u "$TMP/parts" | tr '\n' ' ')" "1 2 3 4 "
is "the same commit runs the same part" "$(part)" "$(tail -n 1 "$TMP/parts")"
is "--part chooses" "$(python3 tests/drivers --share 4 --part 3 no-such-test | grep -c '^part 3 of 4, as asked')" 1
done_testing
