#!/bin/bash
# Mapped memory as real devices want it: few handles for a large block, none for one that cannot fit; alignment as large blocks have.
# without: SIMCUDA_RDMA "in one handle, mapped and opened by one call each" because the first handle is tried at two addresses for network cards
# without: SIMCUDA_RDMA "without a call" because the first handle is made again without memory for network cards where these have none
. "$(dirname "$0")/../../lib.sh"

program=$BUILD_DIR/tests/preload/extents
run() { env LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" GPUCACHE_REPORT="$TMP/report.json" "$@" 2>&1; }
calls() { json "$TMP/report.json" "d[\"driver_calls\"].get(\"$1\", 0)"; }

is "8 GiB are there" "$(run SIMCUDA_MEMORY=16GiB "$program" 8192)" "8192: 0"
is "in one handle, mapped and opened by one call each" "$(calls cuMemCreate) $(calls cuMemMap) $(calls cuMemSetAccess)" "1 1 1"
is "twelve more are refused" "$(run SIMCUDA_MEMORY=16GiB "$program" 8192 12288 | without_refusals)" "$(printf '8192: 0\n12288: 2')"
is "after few calls" "$(($(calls cuMemCreate) <= 4))" 1
is "beyond a limit too" "$(run SIMCUDA_MEMORY=16GiB GPUCACHE_LIMIT=10GiB "$program" 8192 4096 | without_refusals)" "$(printf '8192: 0\n4096: 2')"
is "without a call" "$(calls cuMemCreate) $(calls cuMemAlloc_v2)" "1 0"
is "what fits in smaller pieces is there" "$(run SIMCUDA_MEMORY=16GiB "$program" 2048 512 512 6144)" \
    "$(printf '2048: 0\n512: 0\n512: 0\n6144: 0')"
is "at most 100 handles a GiB" "$(($(calls cuMemCreate) <= 900))" 1

for backend in vmm driver; do
    for seed in 1 2 3; do
        is "$backend: blocks are aligned by their size, seed $seed" \
            "$(run SIMCUDA_MEMORY=16GiB GPUCACHE_BACKEND=$backend "$program" alignment $seed)" "wrong 0"
    done
done

# A library of network cards registers a block as one piece: from then on a block of 2 MiB or more lies in one handle.
mkdir "$TMP/cards"
echo 'int ibv_get_device_list(void) { return 0; }' > "$TMP/cards/card.c"
"${CC:-gcc}" -shared -fPIC -o "$TMP/cards/libibverbs.so.1" "$TMP/cards/card.c"
# in_one: how many of the live blocks of 2 MiB and more, on stdin, lie in one mapping each; and how many do not.
in_one() {
    python3 -c '
import sys
blocks = [[int(word) for word in line.split()] for line in sys.stdin] # to the end: the journal is whole then
mapped = {}
for line in open(sys.argv[1], encoding="utf-8"):
    entry, result, *args = line.split()[2:]
    if entry == "cuMemMap" and result == "0":
        mapped[int(args[0], 16)] = int(args[1])
    elif entry == "cuMemUnmap" and result == "0":
        mapped.pop(int(args[0], 16))
large = [(at, size) for at, size in blocks if size >= 2 << 20]
one = sum(any(base <= at and at + size <= base + length for base, length in mapped.items()) for at, size in large)
print("one" if one == len(large) > 50 else f"{one} of {len(large)}")
' "$TMP/journal"
}
for seed in 1 2 3; do
    is "beside network cards a block lies in one handle, seed $seed" \
        "$(env LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB:$TMP/cards/libibverbs.so.1" GPUCACHE_REPORT=none SIMCUDA_MEMORY=16GiB \
            SIMCUDA_JOURNAL="$TMP/journal" "$program" blocks $seed | in_one)" one
done
ok "else it need not" test "$(run SIMCUDA_MEMORY=16GiB SIMCUDA_JOURNAL="$TMP/journal" "$program" blocks 1 | in_one)" != one
done_testing
