#!/bin/bash
# Measures on a GPU what the driver's calls cost, without the library. With RESULTS set, leaves JSON there.
set -eu
cd "$(dirname "$0")/../.."
BUILD_DIR=${BUILD_DIR:-$PWD/build}
. scripts/gpu-env.sh
has_gpu || { echo "make gpu-bench: there is no NVIDIA GPU here" >&2; exit 1; }
if [ -n "${RESULTS:-}" ]; then
    "$BUILD_DIR/tests/gpu/costs" --json > "$RESULTS/costs.json"
    python3 -c 'import json, sys
for row in json.load(open(sys.argv[1]))["results"]: print(row["name"], row["value"], row["unit"])' "$RESULTS/costs.json"
else
    "$BUILD_DIR/tests/gpu/costs"
fi
