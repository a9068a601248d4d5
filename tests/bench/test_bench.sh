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
like "figures stand beside the baseline's" "$(cat "$TMP/out")" '^instructions: traced +[0-9.]+ +[0-9.]+ +[0-9.]+ +count'
unlike() { if printf '%s\n' "$2" | grep -Eq -- "$3"; then is "$1" "$2" "nothing like $3"; else ok "$1" true; fi; }
unlike "times are not compared" "$(sed '1,/against/d' "$TMP/out")" '^shared pair_512B, ns'
unlike "other allocators' figures are not judged" "$(sed '1,/^judged/d' "$TMP/out")" 'mimalloc|tree'
like "they are shown" "$(cat "$TMP/out")" '^shared/(mimalloc|tree) pair_mixed +[0-9.]+|^# no .*mimalloc|^# no C'
# judged BASELINE VALUE,... [COUNT [BOUND]]: a ratio of times against a baseline, in one measurement after the other, beside a
# count whose baseline is 1, a figure with a bound of 2, and one of another allocator; to $TMP/judged
judged() {
    echo '{"schema": "gpucache-bench/1", "ratios": [{"name": "x/y", "value": '"$1"'}, {"name": "metadata", "value": 1},
        {"name": "of mimalloc", "value": 1}, {"name": "z", "value": 0.1}, {"name": "held", "value": 0.1}, {"name": "gone", "value": 1}]}' > "$TMP/baseline.json"
    python3 - "$ROOT/tests/bench" "$TMP/baseline.json" "$2" "${3:-1.05}" "${4:-1.9}" <<'END' > "$TMP/judged"
import sys
sys.path.insert(0, sys.argv[1])
import bench as b
class Fake(b.Bench):
    def __init__(self, values):
        self.smoke, self.ratios, self.results, self.group_name = False, [], {}, None
        self.values, self.runs = values, 0
    def sizes(self):
        self.goal("x/y", self.values[min(self.runs, len(self.values) - 1)], "", "time")
        self.goal("held", 5, "<= 4", "time")
        self.goal("metadata", float(sys.argv[4]), "", "count")
        self.goal("z", float(sys.argv[5]), "<= 2", "bound")
        self.goal("of mimalloc", 100, "<= 2", "shown")
        self.runs += 1
fake = Fake([float(value) for value in sys.argv[3].split(",")])
before = b.read_baseline(sys.argv[2])
fake.measure("sizes")
fake.measure_again(before)
print("worse", fake.print_changes(sys.argv[2], before), "after", fake.runs, "rows", len(fake.ratios))
END
    tail -1 "$TMP/judged"
}
is "what is as it was is measured once" "$(judged 2 2.1)" "worse 0 after 1 rows 5"
is "what is better too" "$(judged 2 0.1)" "worse 0 after 1 rows 5"
is "what is worse is measured again, and stays worse" "$(judged 2 5,4,6)" "worse 1 after 3 rows 5"
is "its best is what counts" "$(grep -c '^x/y  *4.000  *2.000  *2.00  time  worse$' "$TMP/judged")" 1
is "a noisy moment is no regression" "$(judged 2 5,2.2)" "worse 0 after 2 rows 5"
is "a count may not grow by much" "$(judged 2 2 1.2)" "worse 1 after 3 rows 5"
is "a missed bound is worse, whatever was" "$(judged 2 2 1 2.1)" "worse 1 after 3 rows 5"
like "a row that the run lacks is named" "$(cat "$TMP/judged")" '^# of the baseline.s rows 1 were not measured: gone$'
echo '{"schema": "gpucache-bench/1", "ratios": [{"name": "instructions: off", "value": 10}]}' > "$TMP/baseline.json"
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
is "made programs are replayed" "$(has "all(v['replay.' + t + '.driver_calls'] > 0 for t in ('one_request', 'model_server', 'fine_tune', 'torture', 'random_server'))")" true
is "metadata is counted" "$(has "v['shared.metadata_per_block'] > 0")" true
make=$ROOT/tests/bench/traces_make.py
is "a made program is the same again" "$(python3 "$make" fine_tune | md5sum)" "$(python3 "$make" fine_tune | md5sum)"
is "another seed, another program" "$([ "$(python3 "$make" torture 1 | md5sum)" != "$(python3 "$make" torture 2 | md5sum)" ] && echo differs)" differs
is "handles of one request: one, in five calls, as long as plain" \
    "$(python3 "$ROOT/tests/bench/handles.py" --build "$BUILD_DIR" --limits none,1.00 one_request | sed 1,2d)" \
    "| one_request | 120.0 | none | 1.0000 | 0.0 | 5, 0, 0, 0 | 42, 0 | 0, 0, 0, 0 | 1.0000 | 0.0 | 2 | 42 | 0 |
| one_request | 120.0 | 1.00 | 1.0000 | 0.0 | 5, 0, 0, 0 | 42, 0 | 0, 0, 0, 0 | 1.0000 | 0.0 | 2 | 42 | 0 |"
# silent NAME: whether the last two passes under a limit of 1.1 times the peak make no call, and none refuses anything.
silent() {
    python3 "$ROOT/tests/bench/handles.py" --build "$BUILD_DIR" --limits 1.10 --json "$1" > "$TMP/silent.json"
    json "$TMP/silent.json" 'r["cache"]["calls"][2:] == [0, 0] and not any(r["cache"]["refused"])'
}
is "a limit with some room: a program that repeats itself is silent" "$(silent fine_tune) $(silent model_server)" "true true"
not_ok "an unknown trace is refused" python3 "$ROOT/tests/bench/handles.py" --build "$BUILD_DIR" none_such
for peer in mimalloc tree; do
    if [ "$(has "'$peer.pair_512B' in v")" = true ]; then
        is "compared with $peer" "$(has "'shared/$peer pair_mixed' in q")" true
    else
        skip "compared with $peer" "it is not on this machine"
    fi
done
done_testing
