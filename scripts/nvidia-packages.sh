#!/bin/bash
# Fetches NVIDIA's own libraries, for tests without a device: the driver's user-space half (libcuda, NVML) from Debian's
# non-free packages, and from PyPI two runtimes and CUPTI, with their headers. Nothing is installed, and the machine's own apt
# configuration is neither read nor changed; root is not needed.
#
# usage: scripts/nvidia-packages.sh FOLDER
#     leaves FOLDER/driver/lib*.so.1, FOLDER/runtime-{11.8,12.2}/{include,lib}, FOLDER/cupti-12.2/{include,lib}
#
# The driver is the one of CUDA 12.2 (535): Debian's signature, from its archive keyring, vouches for it.
set -eu -o pipefail
folder=$1
series=535
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# The folder that each gets, its folder in the wheel, the wheel.
wheels=(runtime-11.8 cuda_runtime nvidia-cuda-runtime-cu11==11.8.89 runtime-12.2 cuda_runtime nvidia-cuda-runtime-cu12==12.2.140
    cupti-12.2 cuda_cupti nvidia-cuda-cupti-cu12==12.2.142)

fail() {
    echo "$1" >&2
    exit 1
}
complete() { [ -e "$folder/complete" ] && [ "$(cat "$folder/complete")" = "$series ${wheels[*]}" ]; }
complete && exit 0
[ "$(uname -m)" = x86_64 ] || fail "NVIDIA's libraries are fetched for x86_64 only"
for command in apt-get dpkg-deb flock; do
    command -v $command > /dev/null || fail "there is no $command"
done
[ -e $keyring ] || fail "there is no $keyring (package debian-archive-keyring)"

# One process at a time; an interrupted one leaves nothing that is taken for whole.
mkdir -p "$(dirname "$folder")"
exec 9> "$folder.lock"
flock -w 300 9 || fail "another process has been fetching into $folder for 300 s"
complete && exit 0
work=$(mktemp -d "$folder.XXXXXX")
work=$(cd "$work" && pwd)
# All output goes to a log, of which a failure shows the last line.
exec 3>&2 > "$work/log" 2>&1
status=0
trap 'status=$?; [ $status -eq 0 ] || grep -v "^ *$" "$work/log" | tail -n 1 >&3; rm -rf "$work"' EXIT

fetch_driver() {
    local apt="$work/apt" options
    mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$apt/debs" "$work/nvidia/driver"
    echo "deb [signed-by=$keyring] http://deb.debian.org/debian bookworm non-free" > "$apt/sources.list"
    options=(-q -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State=$apt/state"
        -o Dir::State::status=/dev/null -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User= -o APT::Architecture=amd64
        -o APT::Architectures::=amd64 -o Acquire::Languages=none -o Acquire::Retries=2)
    apt-get "${options[@]}" update
    (cd "$apt/debs" && apt-get "${options[@]}" download libcuda1 libnvidia-ml1)
    for package in "$apt"/debs/*.deb; do
        dpkg-deb -x "$package" "$apt/files"
    done
    # By the names that programs load; the packages have them as links.
    for name in libcuda libnvidia-ml; do
        cp "$apt"/files/usr/lib/x86_64-linux-gnu/nvidia/current/$name.so.$series.* "$work/nvidia/driver/$name.so.1"
    done
    ln -s libcuda.so.1 "$work/nvidia/driver/libcuda.so"
}

# Where Python has no pip, a virtual environment has one.
fetch_wheels() {
    local python=python3 i
    python3 -m pip --version > /dev/null 2>&1 || { python3 -m venv "$work/venv"; python=$work/venv/bin/python3; }
    for ((i = 0; i < ${#wheels[@]}; i += 3)); do
        "$python" -m pip download -q --disable-pip-version-check --no-input --no-deps --only-binary :all: \
            -d "$work/wheel-$i" "${wheels[i + 2]}" < /dev/null
        python3 -m zipfile -e "$work/wheel-$i"/*.whl "$work/wheel"
        mv "$work/wheel/nvidia/${wheels[i + 1]}" "$work/nvidia/${wheels[i]}"
        rm -rf "$work/wheel"
    done
}

fetch_driver
fetch_wheels
echo "$series ${wheels[*]}" > "$work/nvidia/complete"
rm -rf "$folder"
mv "$work/nvidia" "$folder"
