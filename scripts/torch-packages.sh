#!/bin/bash
# Fetches PyTorch from PyPI, 0.7 GB, into a virtual environment of its own; the wheels are kept for other trees.
#
# usage: scripts/torch-packages.sh FOLDER [cached]     cached: nothing is fetched, the wheels are there or it fails
#     leaves FOLDER/bin/python3, which imports torch where the libraries are found that it links against
#
# The wheels are in gpucache/torch in the user's cache folder. NVIDIA's packages, which PyTorch's
# wheel asks for, are not fetched: the tests stand in for their libraries (tests/torch/stubs.py).
set -eu -o pipefail
folder=$1
extent=${2-}
wheels=${XDG_CACHE_HOME:-$HOME/.cache}/gpucache/torch
packages=(torch==2.11.0 triton==3.6.0 numpy==2.2.6 filelock==3.20.0 fsspec==2025.10.0 jinja2==3.1.6 markupsafe==3.0.3
    mpmath==1.3.0 networkx==3.4.2 nvidia-ml-py==13.580.82 setuptools==80.9.0 sympy==1.14.0 typing_extensions==4.15.0)

fail() {
    echo "$1" >&2
    exit 1
}
complete() { [ -e "$folder/complete" ] && [ "$(cat "$folder/complete")" = "${packages[*]}" ]; }
complete && exit 0
[ "$(uname -m)" = x86_64 ] || fail "PyTorch's wheel is fetched for x86_64 only"
if [ "$extent" = cached ] && ! ls "$wheels"/torch-*.whl > /dev/null 2>&1; then
    fail "no wheel of PyTorch in $wheels"
fi
# One process at a time; an interrupted one leaves nothing that is taken for whole.
mkdir -p "$(dirname "$folder")" "$wheels"
exec 9> "$folder.lock"
flock -w 600 9 || fail "another process has been fetching into $folder for 600 s"
complete && exit 0
# All output goes to a log, of which a failure shows the last line.
log=$folder.log
exec 3>&2 > "$log" 2>&1
status=0
trap 'status=$?; [ $status -eq 0 ] || grep -v "^ *$" "$log" | tail -n 1 >&3' EXIT

pip() { "$folder/bin/python3" -m pip --disable-pip-version-check --no-input "$@" < /dev/null; }
rm -rf "$folder"
python3 -m venv "$folder"
if [ "$extent" != cached ]; then
    pip download -q --no-deps --only-binary :all: --exists-action i -d "$wheels" "${packages[@]}"
fi
pip install -q --no-deps --no-index --no-compile --find-links "$wheels" "${packages[@]}"
echo "${packages[*]}" > "$folder/complete"
