#!/bin/bash
# The benchmark runs, in a few seconds, and its output has its form. How fast anything is is not judged here, but
# for bounds that any machine holds.
. "$(dirname "$0")/../lib.sh"

record=$TMP/bench.json
ok "a short run ends well" python3 "$ROOT/tests/bench/bench.py" --build "$BUILD_DIR" --smoke --output "$record"
python3 "$ROOT/tests/bench/bench.py" --build "$BUILD_DIR" --smoke --only steps,sizes --output "$TMP/only.json" > "$TMP/out"
is "each figure is a line of name, value and unit" \
    "$(sed '/^$/,$d; /^#/d' "$TMP/out" | grep -Evc '^[a-z]+\.[A-Za-z0-9_.]+ [0-9.e+]+ [a-zA-Z/_0-9]+$')" 0
like "ours are there" "$(cat "$TMP/out")" '^shared\.pair_512B [0-9.]+ ns$'
like "ratios stand beside the baseline's" "$(cat "$TMP/out")" '^steps: traced/plain +[0-9.]+ +[0-9.]+ +[0-9.]+'
unlike() { if printf '%s\n' "$2" | grep -Eq -- "$3"; then is "$1" "$2" "nothing like $3"; else ok "$1" true; fi; }
unlike "times are not compared" "$(sed '1,/against/d' "$TMP/out")" '^shared pair_512B, ns'
# A baseline that is far better, and one that is far worse: what is measured is judged by both.
judged() { # judged VALUE: its ratio against a baseline of VALUE; to $TMP/judged
    echo '{"schema": "gpucache-bench/1", "ratios": [{"name": "shared/glibc pair_512B", "value": '"$1"'}, {"name": "metadata x", "value": 1}]}' > "$TMP/baseline.json"
    python3 - "$ROOT/tests/bench" "$TMP/baseline.json" "$2" <<'END' > "$TMP/judged"
import sys
sys.path.insert(0, sys.argv[1])
import bench as b
class Fake(b.Bench):
    def __init__(self, values):
        self.smoke, self.ratios, self.results, self.group_name = False, [], {}, None
        self.values, self.runs = values, 0
    def sizes(self):
        self.goal("shared/glibc pair_512B", self.values[min(self.runs, len(self.values) - 1)], "")
        self.goal("metadata x", 1.05, "<= 2")
        self.runs += 1
fake = Fake([float(value) for value in sys.argv[3].split(",")])
before = b.read_baseline(sys.argv[2])
fake.measure("sizes")
fake.measure_again(before)
print("worse", fake.print_changes(sys.argv[2], before), "after", fake.runs, "rows", len(fake.ratios))
END
    tail -1 "$TMP/judged"
}
is "what is as it was is measured once" "$(judged 2 2.1)" "worse 0 after 1 rows 2"
is "what is better too" "$(judged 2 0.1)" "worse 0 after 1 rows 2"
is "what is worse is measured again, and stays worse" "$(judged 2 5,4,6)" "worse 1 after 3 rows 2"
is "its best is what counts" "$(grep -c '^shared/glibc pair_512B  *4.000  *2.000  *2.00  worse$' "$TMP/judged")" 1
is "a noisy moment is no regression" "$(judged 2 5,2.2)" "worse 0 after 2 rows 2"
echo '{"schema": "gpucache-bench/1", "ratios": [{"name": "steps: off/plain", "value": 0.001}]}' > "$TMP/baseline.json"
not_ok "a regression fails" python3 "$ROOT/tests/bench/bench.py" --build "$BUILD_DIR" --smoke --strict --only steps \
    --output "$TMP/steps.json" --baseline "$TMP/baseline.json"
echo '{"schema": "another/1"}' > "$TMP/baseline.json"
not_ok "another file is no baseline" python3 "$ROOT/tests/bench/bench.py" --build "$BUILD_DIR" --smoke --only steps --output "$TMP/steps.json" --baseline "$TMP/baseline.json"
is "instructions are counted" "$(json "$TMP/steps.json" '0 < {x["name"]: x["value"] for x in r["results"]}["steps.off"] < 5000')" true
like "the table has its head" "$(cat "$TMP/out")" '^ratio +value +to reach'
not_ok "an unknown group is refused" python3 "$ROOT/tests/bench/bench.py" --only speed
is "one schema" "$(json "$record" 'r["schema"]')" gpucache-bench/1

# has EXPRESSION: true of v (name → value) and q (ratio → value).
has() {
    json "$record" "(lambda v, q: $1)({x['name']: x['value'] for x in r['results']}, {x['name']: x['value'] for x in r['ratios']})"
}
is "every way in is measured" \
    "$(has "all(w + '.pair_' + s in v for w in ('shared', 'static', 'driver', 'track', 'glibc') for s in ('512B', '64KiB', '4MiB', 'mixed'))")" true
is "a group is compared" "$(has "'grouped/shared pair_512B' in q and 'grouped/shared pair_mixed' in q")" true
is "live blocks are measured" "$(has "'shared.pair_live_100' in v and 'shared.replace_live_10000' in v")" true
is "threads are measured" "$(has "'shared.threads_1_512B' in v")" true
is "a pair is below a millisecond" "$(has "0 < v['shared.pair_512B'] < 1e6")" true
is "the loop is counted" "$(has "v['loop.driver_calls'] >= 0 and v['loop.library'] > 0 and v['loop.plain'] > 0")" true
is "the loop's memory is bounded" "$(has "v['loop.reserved_long'] <= (1 << 30) + (128 << 20)")" true
is "metadata is counted" "$(has "v['shared.metadata_per_block'] > 0")" true
for peer in mimalloc tree; do
    if [ "$(has "'$peer.pair_512B' in v")" = true ]; then
        is "compared with $peer" "$(has "'shared/$peer pair_mixed' in q")" true
    else
        skip "compared with $peer" "it is not on this machine"
    fi
done
done_testing
