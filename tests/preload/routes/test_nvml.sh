#!/bin/bash
# NVML's memory figures, both ABIs, however found, agree with cuMemGetInfo, cuDeviceTotalMem and the limit, by UUID; a
# process that only uses NVML sees the limit and hears nothing.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"
export SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=4GiB GPUCACHE_REPORT=none
MIB=1048576
ways="nvml_linked nvml_dlopen nvml_global"

# client WAY ARGUMENTS…, under the library
client() {
    local way=$1
    shift
    case $way in
    nvml_global) NVML_GLOBAL=1 preloaded timeout 120 "$BUILD_DIR/tests/preload/nvml_dlopen" "$@" 2>&1 ;;
    *) preloaded timeout 120 "$BUILD_DIR/tests/preload/$way" "$@" 2>&1 ;;
    esac
}
# hold MIB: a process that holds memory until $holder is killed.
hold() {
    rm -f "$TMP/holder"
    env LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" "$BUILD_DIR/tests/preload/nvml_dlopen" hold "$1" > "$TMP/holder" 2>&1 &
    holder=$!
    for ((i = 0; i < 2000; i++)); do
        grep -qs '^holding' "$TMP/holder" && break
        sleep 0.05
    done
}
# quarrels OUTPUT: moments and devices of which the calls return different totals or different free memory.
quarrels() {
    awk '$1 == "early" || $1 == "started" { next }
        { key = $1 " " $2; totals[key, $4]++ || total_count[key]++
          if (NF > 4) { free[key, $5]++ || free_count[key]++ } }
        END { for (key in total_count) if (total_count[key] != 1 || free_count[key] != 1) print key; if (!NR) print "nothing" }' <<< "$1"
}
# field OUTPUT WHEN UUID CALL NUMBER
field() { awk -v when="$2" -v uuid="$3" -v call="$4" -v n="$5" '$1 == when && $2 == uuid && $3 == call {print $n}' <<< "$1"; }

plain=$(simulated "$BUILD_DIR/tests/preload/nvml_linked" cuda 100 2>&1)
first=$(awk '$1 == "early" {print $2; exit}' <<< "$plain")
second=$(awk '$1 == "early" && $2 != "'"$first"'" {print $2; exit}' <<< "$plain")
like "there are two devices" "$first $second" '^GPU-[0-9a-f-]+ GPU-[0-9a-f-]+$'
is "without the library all calls agree" "$(quarrels "$plain")" ""

for way in $ways; do
    for mode in off track cache; do
        out=$(GPUCACHE_MODE=$mode client "$way" cuda 100)
        is "$way, $mode, no limit: all agree" "$(quarrels "$out")" ""
        is "$way, $mode, no limit: as much is used and free as without the library" \
            "$(grep -E ' nvml[12] ' <<< "$out")" "$(grep -E ' nvml[12] ' <<< "$plain")"
    done
    is "$way, off: a limit changes nothing" "$(GPUCACHE_MODE=off GPUCACHE_LIMIT=1GiB client "$way" cuda 100)" "$plain"
    for mode in track cache; do
        for order in forward reverse; do
            export SIMCUDA_NVML_ORDER=$order
            out=$(GPUCACHE_MODE=$mode GPUCACHE_LIMIT="$first=1GiB,$second=2GiB" client "$way" cuda 100)
            name="$way, $mode, $order"
            is "$name: all agree" "$(quarrels "$out")" ""
            for when in early started held freed; do
                is "$name, $when: each device has its own limit" \
                    "$(field "$out" $when "$first" nvml1 4) $(field "$out" $when "$second" nvml2 4)" \
                    "$((1024 * MIB)) $((2048 * MIB))"
            done
            is "$name: what is held is used" \
                $(($(field "$out" held "$first" nvml2 6) - $(field "$out" empty "$first" nvml2 6))) $((100 * MIB))
            is "$name: and of the other device nothing more" \
                "$(field "$out" held "$second" nvml2 6)" "$(field "$out" empty "$second" nvml2 6)"
            is "$name: idle memory is free" "$(field "$out" freed "$first" nvml1 5)" "$(field "$out" empty "$first" nvml1 5)"
            is "$name: before CUDA nothing is used" "$(field "$out" early "$first" nvml2 6)" 0
        done
        # CUDA's numbers, not NVML's.
        out=$(GPUCACHE_MODE=$mode GPUCACHE_LIMIT=0=1GiB,1=2GiB client "$way" cuda 100)
        is "$way, $mode: limits by CUDA's number: all agree" "$(quarrels "$out")" ""
        is "$way, $mode: limits by CUDA's number, in NVML's other order" "$(field "$out" started "$second" nvml1 4)" $((2048 * MIB))
        unset SIMCUDA_NVML_ORDER
        out=$(GPUCACHE_MODE=$mode GPUCACHE_LIMIT=64TiB client "$way" cuda 100)
        is "$way, $mode: a limit above the device is none" "$(grep -E ' nvml[12] ' <<< "$out")" "$(grep -E ' nvml[12] ' <<< "$plain")"
        out=$(GPUCACHE_MODE=$mode GPUCACHE_LIMIT=25% client "$way" cuda 100)
        is "$way, $mode: a part of the device" "$(field "$out" held "$first" nvml1 4)" $((1024 * MIB))
    done
done

is "every row of NVML is wrapped" "$(preloaded "$BUILD_DIR/tests/preload/matrix" nvml)" "$(grep -c '^NVML(' "$ROOT/shim/api.def") found"

for mode in track cache; do
    is "threads that ask while CUDA starts and works, $mode: always the limit" \
        "$(GPUCACHE_MODE=$mode GPUCACHE_LIMIT=1GiB client nvml_linked race 10 | sort -u)" "race $((1024 * MIB)) $((1024 * MIB))"
done

# ---- others on the device ----

export SIMCUDA_SHARED=nvml-$$
hold 3000
out=$(GPUCACHE_LIMIT=2GiB client nvml_dlopen cuda 100)
is "others hold memory: all agree" "$(quarrels "$out")" ""
is "others hold memory: used is this process's own" \
    $(($(field "$out" held "$first" nvml2 6) - $(field "$out" empty "$first" nvml2 6))) $((100 * MIB))
ok "others hold memory: what they take of the limit is reserved" test "$(field "$out" held "$first" nvml2 7)" -gt $((500 * MIB))
kill $holder
wait $holder 2> /dev/null
rm -f "/dev/shm/simcuda-$(id -u)-$SIMCUDA_SHARED"
unset SIMCUDA_SHARED

# ---- a group ----

export GPUCACHE_LEDGER=$TMP/ledger GPUCACHE_GROUP=team GPUCACHE_GROUP_LIMIT=2GiB
hold 700
out=$(client nvml_dlopen plain)
is "a group, without CUDA: its limit" "$(field "$out" plain "$first" nvml2 4)" $((2048 * MIB))
held=$(field "$out" plain "$first" nvml2 6)
ok "a group, without CUDA: what it holds is used" test "$held" -ge $((700 * MIB)) -a "$held" -lt $((900 * MIB))
is "a group, without CUDA: and the rest is free" "$(field "$out" plain "$first" nvml1 5)" $((2048 * MIB - held))
is "a group, without CUDA: on the other device nothing is used" "$(field "$out" plain "$second" nvml2 6)" 0
for mode in track cache; do
    out=$(GPUCACHE_MODE=$mode client nvml_dlopen cuda 100)
    is "a member, $mode: all agree" "$(quarrels "$out")" ""
    is "a member, $mode: the group's limit" "$(field "$out" held "$first" nvml1 4)" $((2048 * MIB))
    ok "a member, $mode: what the group holds is used" test "$(field "$out" held "$first" nvml2 6)" -ge $((held + 100 * MIB))
done
out=$(GPUCACHE_MODE=off client nvml_dlopen cuda 100)
is "mode off: the device's own" "$(quarrels "$out") $(field "$out" held "$first" nvml1 4)" " $((4096 * MIB))"
is "another group: a limit of its own, nothing used" \
    "$(GPUCACHE_GROUP=others client nvml_dlopen plain | awk -v u="$first" '$2 == u && $3 == "nvml2" {print $4, $6}')" "$((2048 * MIB)) 0"
out=$(GPUCACHE_LIMIT=1GiB client nvml_dlopen plain)
is "the process's own limit, below the group's" "$(field "$out" plain "$first" nvml2 4)" $((1024 * MIB))
"$TOOL" limit team 1GiB > "$TMP/out" 2>&1
is "the group's limit changed while it runs" "$(field "$(client nvml_dlopen plain)" plain "$first" nvml1 4)" $((1024 * MIB))
kill $holder
wait $holder 2> /dev/null
out=$(client nvml_dlopen plain)
is "the holder is dead: nothing is used" "$(field "$out" plain "$first" nvml2 6)" 0
is "the holder is dead: the next member's limit counts" "$(field "$out" plain "$first" nvml2 4)" $((2048 * MIB))
unset GPUCACHE_LEDGER GPUCACHE_GROUP GPUCACHE_GROUP_LIMIT

# ---- HAMi's limit is that of a container ----

export GPUCACHE_LEDGER=$TMP/ledger2 CUDA_DEVICE_MEMORY_LIMIT_0=2048m CUDA_DEVICE_MEMORY_SHARED_CACHE=/usr/local/vgpu/a.cache
hold 1500
like "HAMi's limit holds for all processes of the cache file" "$(client nvml_dlopen hold 700)" "cuMemAlloc.*CUDA error 2"
out=$(CUDA_DEVICE_ORDER=PCI_BUS_ID client nvml_dlopen plain)
ok "and what they hold is used" test "$(field "$out" plain "$first" nvml2 6)" -ge $((1500 * MIB))
out=$(CUDA_DEVICE_MEMORY_SHARED_CACHE=/usr/local/vgpu/b.cache client nvml_dlopen cuda 700)
is "another cache file is another container" "$(quarrels "$out")" ""
kill $holder
wait $holder 2> /dev/null
unset GPUCACHE_LEDGER CUDA_DEVICE_MEMORY_LIMIT_0 CUDA_DEVICE_MEMORY_SHARED_CACHE

# ---- where there is no NVML ----

is "a look-up finds none, as without the library" \
    "$(LD_PRELOAD=$LIB python3 -c 'import ctypes; print(hasattr(ctypes.CDLL(None), "nvmlDeviceGetMemoryInfo"))' 2>&1)" False

# ---- programs that use NVML and not CUDA ----

for way in $ways; do
    is "$way: the limit, and nothing used" "$(GPUCACHE_LIMIT=1GiB client "$way" plain | grep "$second")" "\
plain $second nvml1 $((1024 * MIB)) $((1024 * MIB)) 0
plain $second nvml2 $((1024 * MIB)) $((1024 * MIB)) 0 0"
done
# seen SETTINGS…: the totals of both devices, and any other output
seen() { env "$@" LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" "$BUILD_DIR/tests/preload/nvml_dlopen" plain 2>&1 | awk '$3 == "nvml2" {printf "%d ", $4 / 1048576; next} $3 != "nvml1"'; }
is "no limit" "$(seen A=)" "4096 4096 "
is "HAMi's variable" "$(seen CUDA_DEVICE_MEMORY_LIMIT=1024m)" "1024 1024 "
is "HAMi's variables, one for each device" "$(seen CUDA_DEVICE_MEMORY_LIMIT_0=1g CUDA_DEVICE_MEMORY_LIMIT_1=1g)" "1024 1024 "
is "a number alone does not name a device" "$(seen GPUCACHE_LIMIT=0=1GiB)" "4096 4096 "
is "in the order of the bus it does" "$(seen GPUCACHE_LIMIT=0=1GiB CUDA_DEVICE_ORDER=PCI_BUS_ID)" "1024 4096 "
is "so do UUIDs of visible devices" "$(seen GPUCACHE_LIMIT=0=1GiB,1=2GiB CUDA_VISIBLE_DEVICES="$second,$first")" "2048 1024 "
is "and their beginnings" "$(seen GPUCACHE_LIMIT=0=1GiB,1=2GiB CUDA_VISIBLE_DEVICES="$second,${first%?}")" "2048 1024 "
is "and indices in the order of the bus" "$(seen GPUCACHE_LIMIT=0=1GiB CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1)" "4096 1024 "
is "one device needs no order" "$(seen GPUCACHE_LIMIT=0=1GiB SIMCUDA_DEVICES=1)" "1024 "
is "a bad limit: the true figures, nothing logged" "$(seen GPUCACHE_LIMIT=many)" "4096 4096 "
is "a wrong name: nothing logged" "$(seen GPUCACHE_LIMITT=1GiB GPUCACHE_LOG=debug)" "4096 4096 "
is "mode off: the true figures" "$(seen GPUCACHE_LIMIT=1GiB GPUCACHE_MODE=off)" "4096 4096 "
printf 'GPUCACHE_LIMIT=1GiB\n' > "$TMP/conf"
is "a configuration file's limit" "$(seen GPUCACHE_CONFIG="$TMP/conf")" "1024 1024 "
done_testing
