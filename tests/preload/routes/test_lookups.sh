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
    env LD_LIBRARY_PATH="$TMP/driver" LD_PRELOAD="$LIB" GPUCACHE_REPORT=none GPUCACHE_LOG="${LEVEL:-info}" \
        "$BUILD_DIR/tests/preload/hidden" "$@" 2>&1 | sed 's/, so freed memory is reused more cautiously//; s/, and freed memory is reused more cautiously//'
}
taken="which this version does not know: the memory that it takes is neither counted nor limited"
unknown="which this version does not know: work may be submitted unseen"
is "an unknown name by cuGetProcAddress" "$(careful entry cuSomethingNew 13000)" "\
gpucache: the program looked up cuSomethingNew of CUDA 13000, $unknown
found"
is "an unknown ABI of a known name" "$(careful entry cuMemAlloc 14000)" "\
gpucache: the program looked up cuMemAlloc of CUDA 14000, $taken
found"
is "an unknown name by dlsym" "$(careful symbol cuSomethingOlder)" "\
gpucache: the program looked up cuSomethingOlder, $unknown
found"
is "a known ABI" "$(careful entry cuMemAlloc 13000)" found
is "a name the driver does not have" "$(careful entry cuSomethingElse 13000)" none
is "nor by dlsym" "$(careful symbol cuSomethingElse)" none
# A driver that is newer than the tables, and its pointers are not its exports: the same pointer is the same ABI.
newer() { HIDDEN_VERSION=14010 careful "$@"; }
is "a newer version of the same ABI" "$(newer owner cuMemAlloc 13990)" wrapped
is "a newer version of another ABI" "$(newer owner cuMemAlloc 14000)" "\
gpucache: the program looked up cuMemAlloc of CUDA 14000, $taken
the driver's own"
is "a newer version, per thread" "$(newer owner cuMemAllocAsync 14000)" wrapped
is "a name that needs no wrapper" "$(careful symbol cuDriverGetVersion)" found

# Each is said, however many came before it, and once; memory that no limit holds by default.
cat > "$TMP/both.c" << 'END'
#include <dlfcn.h>
#include <stddef.h>
int main(void)
{
    static const char *const names[] = {"cuSomethingNew", "cuMemAlloc", "cuSomethingNew", "cuMemAlloc"};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found;
    int (*start)(unsigned), (*proc)(const char *, void **, int, unsigned long, int *);
    *(void **)&start = dlsym(driver, "cuInit");
    *(void **)&proc = dlsym(driver, "cuGetProcAddress_v2");
    start(0);
    for (int i = 0; i < 4; i++)
        proc(names[i], &found, 14000, 0, NULL);
    return 0;
}
END
"${CC:-cc}" -o "$TMP/both" "$TMP/both.c" -ldl
both() {
    env LD_LIBRARY_PATH="$TMP/driver" LD_PRELOAD="$LIB" HIDDEN_VERSION=14010 GPUCACHE_REPORT=none GPUCACHE_LOG="$1" "$TMP/both" 2>&1 |
        sed 's/, so freed memory is reused more cautiously//; s/, and freed memory is reused more cautiously//'
}
is "two names: each is logged once" "$(both info)" "\
gpucache: the program looked up cuSomethingNew of CUDA 14000, $unknown
gpucache: the program looked up cuMemAlloc of CUDA 14000, $taken"
is "an allocating one is a warning" "$(both warn)" "gpucache: the program looked up cuMemAlloc of CUDA 14000, $taken"

# The report says so as well, where a driver's library uses the driver's tables.
cat > "$TMP/tables.c" << 'END'
int cuGetExportTable(const void **, const void *);
int use_tables(void);
int use_tables(void)
{
    static const char id[16];
    const void *table;
    return cuGetExportTable(&table, id);
}
END
cat > "$TMP/program.c" << 'END'
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, unsigned long);
int use_tables(void);
int main(int count, char **words)
{
    unsigned long long block;
    void *context;
    (void)words;
    cuInit(0);
    if (count > 1)
        use_tables();
    return cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&block, 4096);
}
END
"${CC:-cc}" -shared -fPIC -o "$TMP/libnvidia-test.so" "$TMP/tables.c" "$SIM_DIR/libcuda.so.1"
"${CC:-cc}" -o "$TMP/program" "$TMP/program.c" "$TMP/libnvidia-test.so" "$SIM_DIR/libcuda.so.1"
warnings() {
    LD_LIBRARY_PATH=$TMP preloaded GPUCACHE_REPORT="$TMP/report.$1" "$TMP/program" "${@:2}"
    case $1 in json) json "$TMP/report.json" 'r["warnings"]' ;; *) grep -c "does not know: work may be" "$TMP/report.$1" ;; esac
}
is "a report without unknown names" "$(warnings json)" "[]"
like "a report's warning" "$(warnings json tables)" "the program looked up the driver's tables \(libnvidia-test.so\), $unknown"
is "in the text" "$(warnings txt tables)" 1
done_testing
