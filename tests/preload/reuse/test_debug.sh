#!/bin/bash
# GPUCACHE_DEBUG: errors of a program with memory are found and reported with the block's history; correct use is not.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/misuse
report=$TMP/report.json
history='block [0-9]+ at 0x[0-9a-f]+, 100000 bytes, allocated by cuMemAlloc_v2, freed by cuMemFree_v2 in thread [0-9]+ after [0-9.]+ s'

# misused FLAGS ARGUMENT…: runs it; its output and the library's.
misused() {
    rm -f "$report"
    GPUCACHE_DEBUG=$1 GPUCACHE_REPORT=$report preloaded "$program" "${@:2}" 2>&1
}
count() {
    json "$report" 'd["misuse_count"]'
}

for flags in poison guard uaf poison,guard,uaf; do
    output=$(misused $flags none)
    is "$flags: a program that does nothing wrong" "$output" "result 0"
    is "$flags: nothing is counted" "$(count)" 0
    is "$flags: accounts are zero at the end" \
        "$(json "$report" '[d[g + "_bytes"]["current"] for g in ("requested", "allocated", "pending")]')" '[0, 0, 0]'
    for order in '' stream; do
        taken=${order:+Async} taken=cuMemAlloc${taken:-_v2} freed=${taken/Alloc/Free}
        like "$flags: a second free is refused ${order:+(stream)}" "$(misused $flags twice $order)" '^second free 1$'
        like "  and reported" "$(misused $flags twice $order)" \
            "gpucache: $freed was given 0x[0-9a-f]+, which was freed already:"
        like "  with the block's history" "$(misused $flags twice $order)" "100000 bytes, allocated by $taken, freed by $freed in"
        like "$flags: so is a free of what lies inside ${order:+(stream)}" "$(misused $flags inside $order)" \
            "gpucache: $freed was given 0x[0-9a-f]+, which is not the start of"
    done
done

output=$(misused poison write-after-free)
like "poison: a write after the free is reported" "$output" 'gpucache: 3 bytes were written after they were freed, the first 0x07 at byte 5 of'
like "poison: with the block's history" "$output" "$history"
is "poison: and counted" "$(count)" 1
for flags in uaf guard guard,uaf poison,uaf; do
    for what in write-after-free read-after-free; do
        output=$(misused $flags $what)
        like "$flags: $what faults" "$output" '^result 700$'
        like "$flags: $what is reported" "$output" 'gpucache: the program accessed memory that is not mapped; the blocks freed last:'
        like "$flags: $what, with the block's history" "$output" "$history"
    done
done
output=$(misused guard far-overrun)
like "guard: a write far past the end faults" "$output" '^result 700$'
output=$(misused guard overrun 10)
like "guard: a write just past the end is reported" "$output" 'gpucache: 10 bytes were written past the end, the first 0x07 0 bytes behind it, of'
like "guard: with the block's history" "$output" "$history"
is "guard: and counted" "$(count)" 1

output=$(SIMCUDA_ATTRIBUTES=102=0 misused guard,uaf write-after-free)
is "where nothing can be mapped: logged once" "$(echo "$output" | grep -c 'cannot map memory .*; poison only')" 1
like "where nothing can be mapped: poison finds it" "$output" 'written after they were freed'
like "in mode track: logged to be ignored" "$(GPUCACHE_MODE=track misused uaf none)" 'GPUCACHE_DEBUG needs GPUCACHE_MODE=cache'

# Memory in a stream's order is looked at too.
like "poison: a write after the free in a stream's order" "$(misused poison write-after-free stream)" 'gpucache: 3 bytes were written after'
like "uaf: a use after the free in a stream's order" "$(misused uaf write-after-free stream)" '^result 700$'
like "guard: a write past the end in a stream's order" "$(misused guard overrun 10 stream)" 'gpucache: 10 bytes were written past the end'

# Freed addresses are not had again: a thousand blocks, none at the place of another.
aspects=streams,legacy,thread,shared,passing,synchronous,runtime,ordered,mixed,handing,big,graphs,captures
for flags in poison guard uaf poison,guard,uaf; do
    output=$(env GPUCACHE_DEBUG=$flags GPUCACHE_LIMIT=1GiB GPUCACHE_REPORT="$report" SIMCUDA_WORK_US=5 LD_LIBRARY_PATH="$SIM_DIR" \
        LD_PRELOAD="$LIB" timeout 120 "$BUILD_DIR/tests/preload/torture" $RANDOM 1200 4 "$aspects" 2>&1)
    is "$flags: the torture test finds nothing, nor does the library" "$? $(count)" "0 0"
    echo "# ${output//$'\n'/$'\n'# }"
    is "$flags: every block was freed" "$(json "$report" '[d["leak_count"], d["requested_bytes"]["current"]]')" '[0, 0]'
done
done_testing
