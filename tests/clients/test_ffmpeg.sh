#!/bin/bash
# Debian's ffmpeg, unmodified: frames go to the simulated device and come back under the library, and are the
# same to the last bit as frames that never left the host. ffmpeg finds the driver by dlopen and dlsym.
# timeout: 400
. "$(dirname "$0")/../lib.sh"

if ! command -v ffmpeg > /dev/null; then
    skip "ffmpeg" "ffmpeg is not installed"
    done_testing
fi
if ! ffmpeg -hide_banner -filters 2> /dev/null | grep -q hwupload_cuda; then
    skip "ffmpeg" "this ffmpeg has no hwupload_cuda"
    done_testing
fi

# encode SIZE FRAMES FILTERS [OPTION…]: the MD5 of the frames after the filters.
encode() {
    local size=$1 frames=$2 filters=$3
    shift 3
    ffmpeg -nostdin -hide_banner -loglevel error "$@" -f lavfi -i "testsrc2=size=$size:rate=25" -frames:v "$frames" \
        -vf "$filters" -f md5 -
}
device=(-init_hw_device cuda=cu:0 -filter_hw_device cu)
there_and_back='hwupload_cuda,hwdownload,format'

# Sizes with their frames: over three thousand in all, odd sizes included.
frames_of() {
    case $1 in
    64x64) echo 1500 ;;
    65x33 | 127x95) echo 500 ;;
    320x240) echo 400 ;;
    641x359) echo 150 ;;
    1280x720) echo 60 ;;
    esac
}
total=0
for size in 64x64 65x33 127x95 320x240 641x359 1280x720; do
    for format in nv12 yuv444p; do
        frames=$(frames_of $size)
        total=$((total + frames))
        want=$(encode $size "$frames" "format=$format" 2>&1)
        report=$TMP/$size.$format.json
        got=$(LD_LIBRARY_PATH=$SIM_DIR LD_PRELOAD=$LIB GPUCACHE_REPORT=$report encode $size "$frames" \
            "format=$format,$there_and_back=$format" "${device[@]}" 2>&1)
        is "$size $format: $frames frames come back as they went" "$got" "$want"
        is "$size $format: the allocations are in the report" \
            "$(json "$report" 'd["alloc_count"] > 0 and d["requested_bytes"]["peak"] > 0 and any(k.startswith("cuMemAlloc") for k in d["by_api"])')" true
        is "$size $format: ffmpeg freed all it took" "$(json "$report" 'd["leak_count"]')" 0
    done
done
ok "thousands of frames" test "$total" -ge 3000

# The same without the library and in each mode.
want=$(encode 320x240 50 format=nv12 2>&1)
run_mode() {
    encode 320x240 50 "format=nv12,$there_and_back=nv12" "${device[@]}" 2>&1
}
is "without the library" "$(LD_LIBRARY_PATH=$SIM_DIR run_mode)" "$want"
for mode in off track cache; do
    is "mode $mode" "$(LD_LIBRARY_PATH=$SIM_DIR LD_PRELOAD=$LIB GPUCACHE_MODE=$mode GPUCACHE_REPORT=none run_mode)" "$want"
done

# A limit too small: ffmpeg reports it itself and ends by its own exit status, which from version 6.1 on is the error's number,
# 244 for ENOMEM. A signal shows as 129 to 192.
for limit in 1MiB 65MiB; do
    output=$(LD_LIBRARY_PATH=$SIM_DIR LD_PRELOAD=$LIB GPUCACHE_LIMIT=$limit GPUCACHE_REPORT=none \
        encode 1280x720 30 "format=nv12,$there_and_back=nv12" "${device[@]}" 2>&1)
    status=$?
    ok "limit $limit: ffmpeg fails by its own exit status" test $status -gt 0 -a \( $status -lt 129 -o $status -gt 192 \)
    like "limit $limit: its message names the error" "$output" 'CUDA_ERROR_OUT_OF_MEMORY'
done
done_testing
