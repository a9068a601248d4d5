#!/bin/bash
# The advice of a report, for programs that need it: each sentence is true of the run, and following it helps.
. "$(dirname "$0")/../../lib.sh"
progs=$BUILD_DIR/tests/preload

run() { # run REPORT VARIABLE=VALUE… -- COMMAND…
    local report=$1 settings=()
    shift
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    env "${settings[@]}" GPUCACHE_REPORT="$TMP/$report" LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" timeout 60 "$@" \
        > "$TMP/out" 2>&1 < /dev/null
}
advises() { # advises REPORT EXPRESSION: over `r`, its first device `d`, and advice(PATTERN), what matched it
    python3 - "$TMP/$1" "$2" << 'END'
import json, re, sys
r = json.load(open(sys.argv[1]))
d = r["devices"][0]
def advice(pattern):
    return next((m for m in (re.search(pattern, text) for text in r["advice"]) if m), None)
if not eval("(" + sys.argv[2] + ")"):
    sys.exit("\n".join(r["advice"]) or "nothing is advised")
END
}

run quiet.json GPUCACHE_LIMIT=8GiB -- "$progs/steps" 20 1
ok "a program that fits has nothing to do" advises quiet.json 'r["advice"] == [] and r["verdict"] == "no problem found" and r["problem"] == "none"'

# Streams whose work takes a while: more is held than is in use.
run large.json GPUCACHE_LIMIT=8GiB SIMCUDA_WORK_US=20 -- "$progs/steps" 60 3 80 4
ok "more was held than the peak needs" advises large.json 'advice("were reserved on device 0, of which")'
fits=$(python3 -c 'import json, re, sys
print(re.search(r"would fit in about ([\d.]+) MiB$", json.load(open(sys.argv[1]))["advice"][0]).group(1))' "$TMP/large.json")
ok "and it does fit in $fits MiB" run small.json "GPUCACHE_LIMIT=${fits}MiB" SIMCUDA_WORK_US=20 -- "$progs/steps" 60 3 80 4
ok "where no request is refused" advises small.json \
    "d['oom_count'] == 0 and d['limit_bytes'] == int(float($fits) * 1048576) and d['reserved_bytes']['peak'] <= d['limit_bytes']"
run unmeasured.json SIMCUDA_WORK_US=20 -- "$progs/steps" 60 3 80 4
ok "a context that was not measured comes on top" advises unmeasured.json 'advice("MiB plus the context$") and d["context_bytes"]["peak"] == 0'

run refused.json GPUCACHE_LIMIT=1GiB -- "$progs/fragment" 3000 5
ok "requests that found no room are counted" advises refused.json \
    'int(advice(r"^(\d+) requests ran out of memory on device 0, the largest of [\d.]+ MiB: raise GPUCACHE_LIMIT from 1.0 GiB to at least 1.1 GiB").group(1)) == d["oom_count"]'
ok "and are the verdict" advises refused.json \
    'r["verdict"] == "out of memory: %d requests refused on device 0, limit 1.0 GiB" % d["oom_count"] and r["problem"] == "refused"'
run one.json GPUCACHE_LIMIT=72MiB -- "$progs/tools_client" 4 3 9
enough=$(python3 -c 'import json, re, sys
print(re.search(r"from 72.0 MiB to at least ([\d.]+) MiB", json.load(open(sys.argv[1]))["advice"][0]).group(1))' "$TMP/one.json")
run enough.json "GPUCACHE_LIMIT=${enough}MiB" -- "$progs/tools_client" 4 3 9
ok "with the limit of the advice, $enough MiB, none is refused" advises enough.json 'd["oom_count"] == 0 and d["alloc_count"] == 3'
run less.json "GPUCACHE_LIMIT=${enough%.*}MiB" -- "$progs/tools_client" 4 3 12
ok "three MiB more are refused there" advises less.json 'd["oom_count"] == 1 and d["refused_bytes"] == 12 << 20'
ok "and how often the limit was met" advises refused.json \
    'int(advice(r"limit was reached (\d+) times on device 0; idle memory was released").group(1)) == d["retry_count"]'
run holes.json GPUCACHE_LIMIT=1GiB GPUCACHE_BACKEND=driver -- "$progs/fragment" 3000 5
ok "fragmentation is named where memory is not mapped" advises holes.json \
    'advice("are free in the cache on device 0, the largest free block .*GPUCACHE_BACKEND=vmm") and d["fragmentation"]["free_bytes"] > 64 << 20'

GPUCACHE_BACKEND=auto run tenants.json SIMCUDA_MEMORY=2GiB -- "$progs/tenants" limits
ok "tenants that met their own limit" advises tenants.json \
    'sum(t["oom_count"] for t in d["tenants"]) == d["oom_count"] > 0 and not advice("requested too much")
     and all(advice("%d requests? of tenant %s ran out of memory" % (t["oom_count"], t["name"])) for t in d["tenants"])'

GPUCACHE_STACKS=off run leaks.json -- "$progs/stacks"
ok "a leak: how to see from where" advises leaks.json 'advice("1 allocation of 1.0 MiB was never freed on device 0; GPUCACHE_STACKS=leaks")'
GPUCACHE_STACKS=leaks run known.json -- "$progs/stacks"
ok "which is not logged where it is known" advises known.json 'advice(r"was never freed on device 0, at site_one\+0x[0-9a-f]+ \(stacks\)$")'

run sync.json GPUCACHE_REUSE=sync SIMCUDA_WORK_US=200 -- "$progs/torture" 7 300 4 streams
ok "frees that wait" advises sync.json \
    'advice("frees wait for the device .GPUCACHE_REUSE=sync.") and r["latency_ns"]["free"]["p50"] > 10000'

run traced.json "GPUCACHE_TRACE=$TMP/trace" -- "$progs/steps" 20 1
ok "a plan" "$TOOL" plan "$TMP/trace" --deadline 1 --output "$TMP/plan"
run followed.json "GPUCACHE_PLAN=$TMP/plan" -- "$progs/steps" 20 1
ok "that is followed" advises followed.json 'd["plan"]["fallback"]["count"] == 0 and not advice("plan")'
run other.json "GPUCACHE_PLAN=$TMP/plan" -- "$progs/stacks"
ok "and one that is not" advises other.json \
    'advice("^4010 of 4010 allocations did not follow the plan on device 0, 4010 of them: not in the plan")'
# shellcheck disable=SC2016 # the inner shell expands it
ok "80 columns" bash -c 'for report in "$1"/*.json; do "$2" report "$report" || exit 1; done | awk "length > 80 { print; bad = 1 } END { exit bad }"' \
    - "$TMP" "$TOOL"
done_testing
