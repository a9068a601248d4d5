#!/bin/bash
# Everything this project does on a machine with an NVIDIA GPU: builds there, runs the tests that need the GPU,
# measures the driver. Results go to $OUT (default build/gpu): test.txt, costs.json, machine.txt.
set -u
cd "$(dirname "$0")/.." || exit 1
RESULTS=${OUT:-$PWD/build/gpu}
unset OUT
export RESULTS
mkdir -p "$RESULTS"
. scripts/gpu-env.sh
has_gpu || { echo "scripts/gpu.sh: there is no NVIDIA GPU here" >&2; exit 1; }
{
    nvidia-smi
    uname -srm
    nvcc --version 2> /dev/null || "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" --version
    git rev-parse HEAD 2> /dev/null
} > "$RESULTS/machine.txt" 2>&1
status=0
make -j"$(nproc)" gpu-programs > "$RESULTS/build.txt" 2>&1 || { tail -n 40 "$RESULTS/build.txt"; exit 1; }
make gpu-test 2>&1 | tee "$RESULTS/test.txt"
[ "${PIPESTATUS[0]}" -eq 0 ] || status=1
make gpu-bench 2>&1 | tee "$RESULTS/bench.txt"
[ "${PIPESTATUS[0]}" -eq 0 ] || status=1
exit $status
