#!/bin/bash
# The stand-in runtime as programs meet it: what it exports, how it finds the driver, and programs built by nvcc on it,
# shared and from the archive.
# timeout: 400
. "$(dirname "$0")/../lib.sh"

RUNTIME=$ROOT/tests/simcuda/runtime
REAL=${CUDA_HOME:-/usr/local/cuda}/lib64/libcudart.so.13
TABLE=$ROOT/../shared/data/cudart_13.0_lookups.tsv
CLIENTS=$BUILD_DIR/tests/clients

# ---- exports ----

exports() { nm -D --defined-only "$1" | awk '{print $NF}' | sort; }
is "soname" "$(readelf -d "$SIM_DIR/libcudart.so.13" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')" libcudart.so.13
is "libcudart.so leads to it" "$(readlink "$SIM_DIR/libcudart.so")" libcudart.so.13
if [ -e "$REAL" ]; then
    exports "$REAL" > "$TMP/real"
    exports "$SIM_DIR/libcudart.so.13" > "$TMP/own"
    ok "exports what NVIDIA's runtime does, versions too" diff "$TMP/own" "$TMP/real"
else
    skip "exports what NVIDIA's runtime does, versions too" "no toolkit with its libcudart.so.13"
fi
exports "$SIM_DIR/libcudart.so.13" | sed -n 's/@.*//; /^_*cuda/p' | sort > "$TMP/shared"
nm -g --defined-only "$SIM_DIR/libcudart_static.a" | awk 'NF == 3 {print $3}' | sort > "$TMP/static"
ok "the archive has the same names and no other" diff "$TMP/static" "$TMP/shared"

# ---- look-ups ----

# name version flags, as lookups.def has them, after the one for the empty name.
table() { echo " 0 0"; sed -n 's/^RT_LOOKUP\(_UNUSED\)\?(\([^,]*\), \([0-9]*\), \([0-9]*\).*/\2 \3 \4/p' "$RUNTIME/lookups.def"; }
# The same from a journal.
asked() { awk '$3 == "cuGetProcAddress_v2"' "$1" | cut -d ' ' -f 5-; }

if [ -e "$TABLE" ]; then
    is "lookups.def has what a CUDA 13.0 runtime asks for, in its order" "$(table)" \
        "$(tail -n +2 "$TABLE" | awk -F'\t' '{print ($1 == "(empty)" ? "" : $1), $2, $3}')"
    is "and where it found an answer, the same one" \
        "$(sed -n 's/^RT_LOOKUP(.*, \([^)]*\))$/\1/p' "$RUNTIME/lookups.def")" \
        "$(tail -n +2 "$TABLE" | awk -F'\t' '$4 != "(none)" && $4 != "-" {print $4}')"
else
    skip "lookups.def has what a CUDA 13.0 runtime asks for, in its order" "no $TABLE"
fi
SIMCUDA_JOURNAL=$TMP/ours simulated "$BUILD_DIR/tests/unit/sim/test_sim_runtime" > /dev/null
is "look-ups: as in the table, through cuGetProcAddress" "$(asked "$TMP/ours" | head -n 440)" "$(table)"
is "look-ups come first, then the version, then cuInit" \
    "$(sed -n '441,442p' "$TMP/ours" | cut -d ' ' -f 3 | paste -sd ' ')" "cuDriverGetVersion cuInit"
if [ -e "$REAL" ]; then
    # It refuses the simulated driver once it has asked, which is all that matters here.
    LD_PRELOAD=$REAL SIMCUDA_JOURNAL=$TMP/theirs simulated "$BUILD_DIR/tests/unit/sim/test_sim_runtime" > /dev/null 2>&1
    is "NVIDIA's runtime asks the simulated driver for the same" "$(asked "$TMP/theirs")" "$(table)"
else
    skip "NVIDIA's runtime asks the simulated driver for the same" "no toolkit with its libcudart.so.13"
fi

# ---- versions and absence ----

printf '%s\n' '#include <cuda_runtime_api.h>' '#include <stdio.h>' 'int main(void)' '{' \
    'int version = -1, count = -1, driver, devices;' \
    'driver = cudaDriverGetVersion(&version); devices = cudaGetDeviceCount(&count);' \
    'printf("%d %d %d %d %d\n", driver, version, devices, cudaFree(NULL), cudaGetLastError());' \
    'return 0; }' > "$TMP/start.c"
for cuda in "${CUDA_HOME:-/usr/local/cuda}" "$ROOT/build/cuda" /usr; do
    [ -e "$cuda/include/cuda_runtime_api.h" ] && break
done
if [ -e "$cuda/include/cuda_runtime_api.h" ] &&
    ${CC:-gcc} -I"$cuda/include" -o "$TMP/start" "$TMP/start.c" "$SIM_DIR/libcudart.so.13"; then
    mkdir "$TMP/alone" && cp "$SIM_DIR/libcudart.so.13" "$TMP/alone"
    if ldconfig -p 2> /dev/null | grep -q 'libcuda\.so\.1'; then
        skip "without a driver" "there is one"
    else
        is "without a driver: its version is 0, all else cudaErrorInsufficientDriver" \
            "$(LD_LIBRARY_PATH=$TMP/alone "$TMP/start" | cut -d ' ' -f 1-4)" "0 0 35 35"
    fi
    is "with an older driver: cudaErrorInsufficientDriver" \
        "$(SIMCUDA_DRIVER_VERSION=12080 simulated "$TMP/start" | cut -d ' ' -f 1-4)" "0 12080 35 35"
    is "without a device: cudaErrorNoDevice" \
        "$(SIMCUDA_DEVICES=0 simulated "$TMP/start" | cut -d ' ' -f 3-4)" "100 100"
    is "cuInit that fails is the answer to every call" \
        "$(SIMCUDA_FAIL=cuInit@1 simulated "$TMP/start" | cut -d ' ' -f 3 | grep -c '^0$')" 0

    # A driver that is nothing but its look-ups: the second gets what is asked for after cuGetProcAddress 12000.
    cat > "$TMP/fake.c" << 'END'
#include <stdio.h>
#include <string.h>
static int firsts, seconds;
static int nothing(void) { return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 3; return 0; }
int cuInit(unsigned flags) { fprintf(stderr, "%d %d\n", firsts, seconds); return (int)flags; }
static int answer(const char *name, void **function)
{
    *function = !strcmp(name, "cuInit") ? (void *)cuInit : !strcmp(name, "cuDriverGetVersion") ? (void *)cuDriverGetVersion
              : !strcmp(name, "cuDeviceGetCount") ? (void *)cuDeviceGetCount : (void *)nothing;
    return 0;
}
#ifdef WITH_LOOKUPS
static int second(const char *name, void **function, int version, unsigned long long flags, int *status)
{
    seconds++;
    return answer(name, function);
}
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status)
{
    firsts++;
    if (strcmp(name, "cuGetProcAddress") || version != 12000)
        return answer(name, function);
    *function = (void *)second;
    return 0;
}
#endif
END
    for with in -DWITH_LOOKUPS -UWITH_LOOKUPS; do
        ${CC:-gcc} -w -shared -fPIC $with -o "$TMP/alone/libcuda.so.1" "$TMP/fake.c"
        LD_LIBRARY_PATH=$TMP/alone "$TMP/start" > "$TMP/out$with" 2> "$TMP/err$with"
        is "a driver's own devices, $with" "$(cut -d ' ' -f 1-3 "$TMP/out$with")" "0 13000 0"
    done
    is "all but the first four look-ups go through the pointer that was found" "$(cat "$TMP/err-DWITH_LOOKUPS")" "4 436"
    is "a driver without look-ups is asked by dlsym" "$(cat "$TMP/err-UWITH_LOOKUPS")" "0 0"
else
    skip "versions and absence" "no CUDA headers"
fi

# ---- programs ----

# What a client prints is in the journal too: each driver call it counted itself was made that often.
counted() { awk '$1 == "count" {print $2, $3}' "$1" | sort; }
journalled() {
    awk 'NR == FNR {if ($1 == "count") want[$2] = 1; next} ($3 in want) {n[$3]++} END {for (e in n) print e, n[e]}' \
        "$1" "$2" | sort
}
for program in driver_linked driver_dlopen; do
    SIMCUDA_JOURNAL=$TMP/$program.journal simulated "$CLIENTS/$program" > "$TMP/$program" 2> "$TMP/errors"
    is "$program: runs" "$?$(cat "$TMP/errors")" 0
    is "$program: the journal has its calls" "$(journalled "$TMP/$program" "$TMP/$program.journal")" "$(counted "$TMP/$program")"
done
is "driver_dlopen: the same results" "$(cat "$TMP/driver_dlopen")" "$(cat "$TMP/driver_linked")"

if [ -x "$CLIENTS/vector-shared" ]; then
    for kind in shared static; do
        SIMCUDA_JOURNAL=$TMP/$kind.journal simulated "$CLIENTS/vector-$kind" > "$TMP/vector-$kind" 2> "$TMP/errors"
        is "vector-$kind: runs" "$?$(cat "$TMP/errors")" 0
        calls=$(awk '$2 == "cudaMalloc" {print $3 - 1}' "$TMP/vector-$kind") # one is of 0 bytes
        is "vector-$kind: each cudaMalloc is a cuMemAlloc_v2" "$(grep -c ' cuMemAlloc_v2 ' "$TMP/$kind.journal")" "$calls"
        is "vector-$kind: each kernel is launched" "$(grep -c ' cuLaunchKernel 0 ' "$TMP/$kind.journal")" 2
        is "vector-$kind: no call of the driver fails" \
            "$(awk '$4 != 0 && $3 != "cuGetProcAddress_v2"' "$TMP/$kind.journal")" ""
        SIMCUDA_WORK_US=2000 simulated "$CLIENTS/vector-$kind" > "$TMP/slow" 2>&1
        is "vector-$kind: the same when work takes its time" "$(cat "$TMP/slow")" "$(cat "$TMP/vector-$kind")"
    done
    is "vector-static: the same results" "$(cat "$TMP/vector-static")" "$(cat "$TMP/vector-shared")"
else
    skip "vector" "not built: there is no nvcc here"
fi
done_testing
