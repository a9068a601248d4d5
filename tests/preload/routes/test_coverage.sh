#!/bin/bash
# The tables know every function of the toolkit's headers, and of older ones where they are available.
. "$(dirname "$0")/../../lib.sh"

folders=()
for folder in "${CUDA_HOME:-/usr/local/cuda}/include" "$ROOT"/build/cuda*/include; do
    [ -f "$folder/cudaTypedefs.h" ] && folders+=("$folder")
done
[ ${#folders[@]} -gt 0 ] || folders+=("${CUDA_HOME:-/usr/local/cuda}/include")
exec python3 "$ROOT/tests/preload/routes/check_coverage.py" "${folders[@]}"
