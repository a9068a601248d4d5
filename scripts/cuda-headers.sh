#!/bin/bash
# Fetches the CUDA headers of one version from PyPI, nothing else of the toolkit.
#
# usage: scripts/cuda-headers.sh 11.8|12.4|13.0 FOLDER      leaves FOLDER/include/cuda.h
set -eu
version=$1
folder=$2
[ -e "$folder/include/cuda.h" ] && exit 0
case $version in
11.8) packages=(nvidia-cuda-runtime-cu11==11.8.89) ;;
12.4) packages=(nvidia-cuda-runtime-cu12==12.4.127) ;;
13.0) packages=('nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*') ;;
*)
    echo "usage: scripts/cuda-headers.sh 11.8|12.4|13.0 FOLDER" >&2
    exit 2
    ;;
esac
mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --no-input --no-deps --only-binary :all: \
    --target "$work/site" "${packages[@]}" < /dev/null
header=$(find "$work/site" -name cuda.h | head -n 1)
[ -n "$header" ] || { echo "the packages hold no cuda.h" >&2; exit 1; }
rm -rf "$folder"
mkdir "$work/toolkit"
mv "$(dirname "$header")" "$work/toolkit/include"
mv "$work/toolkit" "$folder"
