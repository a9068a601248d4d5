#!/bin/bash
# cuGetProcAddress of a driver whose answers are not its exported symbols: the wrapper comes from name, version and flags
# alone, exactly, and calls what the driver gave for just those.
. "$(dirname "$0")/../../lib.sh"
mkdir "$TMP/driver"
cp "$BUILD_DIR/tests/preload/libhidden.so" "$TMP/driver/libcuda.so.1" || exit 1
run() { env LD_LIBRARY_PATH="$TMP/driver" "$@" "$BUILD_DIR/tests/preload/hidden" 2>&1; }

is "without the library: what the driver has" "$(run)" "\
cuMemAlloc 2000 0: the driver's own, 1200
cuMemAlloc 3020 0: the driver's own, 1302
cuMemAlloc 13000 0: the driver's own, 1302
cuMemAllocAsync 11020 0: the driver's own, 2120
cuMemAllocAsync 11020 1: the driver's own, 2120
cuMemAllocAsync 13000 2: the driver's own, 7120
cuMemAlloc 13000 2: the driver's own, 1302
cuCtxCreate 3020 0: the driver's own, 1320
cuCtxCreate 11040 0: the driver's own, 2104
cuSomethingNew 13000 0: the driver's own, 4242
cuMemAlloc 1000 0: none"
# Nothing can be allocated: a wrapper hands the call on, and the driver function behind it answers.
is "with the library: each the wrapper of just that ABI and flavour" "$(run LD_PRELOAD="$LIB" GPUCACHE_REPORT=none)" "\
cuMemAlloc 2000 0: cuMemAlloc, 1200
cuMemAlloc 3020 0: cuMemAlloc_v2, 1302
cuMemAlloc 13000 0: cuMemAlloc_v2, 1302
cuMemAllocAsync 11020 0: cuMemAllocAsync, 2120
cuMemAllocAsync 11020 1: cuMemAllocAsync, 2120
cuMemAllocAsync 13000 2: cuMemAllocAsync_ptsz, 7120
cuMemAlloc 13000 2: cuMemAlloc_v2, 1302
cuCtxCreate 3020 0: cuCtxCreate_v2, 1320
cuCtxCreate 11040 0: cuCtxCreate_v3, 2104
cuSomethingNew 13000 0: the driver's own, 4242
cuMemAlloc 1000 0: none"

# Entry points in no table may submit work unseen: the library logs each once, by name, and is careful from then on.
careful() {
    env LD_LIBRARY_PATH="$TMP/driver" LD_PRELOAD="$LIB" GPUCACHE_REPORT=none GPUCACHE_LOG=info \
        "$BUILD_DIR/tests/preload/hidden" "$@" 2>&1 | sed 's/, so freed memory is reused more cautiously//'
}
unknown="which this version does not know: work may be submitted unseen"
is "an unknown name by cuGetProcAddress" "$(careful entry cuSomethingNew 13000)" "\
gpucache: the program looked up cuSomethingNew of CUDA 13000, $unknown
found"
is "an unknown ABI of a known name" "$(careful entry cuMemAlloc 14000)" "\
gpucache: the program looked up cuMemAlloc of CUDA 14000, $unknown
found"
is "an unknown name by dlsym" "$(careful symbol cuSomethingOlder)" "\
gpucache: the program looked up cuSomethingOlder, $unknown
found"
is "a known ABI" "$(careful entry cuMemAlloc 13000)" found
is "a name the driver does not have" "$(careful entry cuSomethingElse 13000)" none
is "nor by dlsym" "$(careful symbol cuSomethingElse)" none
is "a name that needs no wrapper" "$(careful symbol cuDriverGetVersion)" found
done_testing
