#!/bin/bash
# Runs an unmodified CUDA program without and with the library and shows both, and the library's report.
# On a GPU if there is one, else on the simulated driver. `make demo` builds what this needs.
set -eu
cd "$(dirname "$0")/.."
BUILD_DIR=${BUILD_DIR:-$PWD/build}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

program=$BUILD_DIR/tests/demo/train-shared
api="the CUDA runtime (built by nvcc -cudart shared)"
if [ ! -x "$program" ]; then
    program=$BUILD_DIR/tests/demo/train_driver
    api="the CUDA driver API (there is no nvcc here)"
fi
. scripts/gpu-env.sh
if has_gpu; then
    where=$(nvidia-smi -L | head -n 1)
    use_toolkit_libraries
else
    where="the simulated driver (there is no GPU here), its calls slowed by SIMCUDA_LATENCY=h200, which is provisional"
    export SIMCUDA_LATENCY=h200
    export LD_LIBRARY_PATH=$BUILD_DIR/simcuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

echo "program: ${program#"$PWD"/}, through $api"
echo "device:  $where"
echo
status=0
"$program" > "$out/without" 2>&1 || status=1
LD_PRELOAD=$BUILD_DIR/libgpucache.so GPUCACHE_REPORT=$out/report.json "$program" > "$out/with" 2>&1 || status=1
{
    printf '%-46s  %s\n' "WITHOUT" "WITH LD_PRELOAD=${BUILD_DIR#"$PWD"/}/libgpucache.so"
    paste -d '\n' "$out/without" "$out/with" | while IFS= read -r left && IFS= read -r right; do
        printf '%-46s  %s\n' "$left" "$right"
    done
}
echo
echo "THE LIBRARY'S REPORT"
[ -s "$out/report.json" ] || { echo "no report was written" >&2; exit 1; }
"$BUILD_DIR/gpucache" report "$out/report.json" || status=1
# All lines but the time must agree.
if ! diff <(grep -v '^malloc' "$out/without") <(grep -v '^malloc' "$out/with") > /dev/null; then
    echo "the two runs differ" >&2
    status=1
fi
[ $status -eq 0 ] || { echo "demo failed" >&2; exit 1; }
echo
echo "Both runs computed the same."
