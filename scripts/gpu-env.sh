# shellcheck shell=bash
# For sourcing: has_gpu, and the toolkit's libraries on LD_LIBRARY_PATH.
has_gpu() {
    command -v nvidia-smi > /dev/null 2>&1 && nvidia-smi -L 2> /dev/null | grep -q '^GPU'
}
use_toolkit_libraries() {
    export LD_LIBRARY_PATH="${CUDA_HOME:-/usr/local/cuda}/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}
