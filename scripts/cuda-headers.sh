#!/bin/bash
# Fetches the CUDA headers of one version from PyPI, nothing else of the toolkit.
#
# usage: scripts/cuda-headers.sh 11.8|12.4|13.0|13.1|13.2 FOLDER      leaves FOLDER/include/cuda.h
#
# The runtime's package lacks the folder crt, which its own headers include: the compiler's package has that, or from
# CUDA 13 on a package of its own.
set -eu
version=$1
folder=$2
# The file that came last: a folder without it is fetched again.
[ -e "$folder/include/crt/host_defines.h" ] && exit 0
case $version in
11.8) packages=(nvidia-cuda-runtime-cu11==11.8.89 nvidia-cuda-nvcc-cu11==11.8.89) ;;
12.4) packages=(nvidia-cuda-runtime-cu12==12.4.127 nvidia-cuda-nvcc-cu12==12.4.131) ;;
13.[0-2]) packages=("nvidia-cuda-runtime==$version.*" "nvidia-cuda-crt==$version.*") ;;
*)
    echo "usage: scripts/cuda-headers.sh 11.8|12.4|13.0|13.1|13.2 FOLDER" >&2
    exit 2
    ;;
esac
mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --no-input --no-deps --only-binary :all: \
    --target "$work/site" "${packages[@]}" < /dev/null
mkdir -p "$work/toolkit/include"
for include in "$work"/site/nvidia/*/include; do
    cp -R "$include/." "$work/toolkit/include"
done
for header in cuda.h cuda_runtime_api.h crt/host_defines.h; do
    [ -e "$work/toolkit/include/$header" ] || { echo "the packages hold no $header" >&2; exit 1; }
done
rm -rf "$folder"
mv "$work/toolkit" "$folder"
