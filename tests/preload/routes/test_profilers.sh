#!/bin/bash
# Profilers and memory checkers beside the library: the calls that they must see reach the runtime.
. "$(dirname "$0")/../../lib.sh"
# A runtime that counts the calls that reach it. It prints the numbers at exit.
cat > "$TMP/runtime.c" << 'END'
#include <stddef.h>
#include <stdio.h>
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuMemFree_v2(unsigned long long);
static int allocs, frees;
int cudaMalloc(void **pointer, size_t bytes)
{
    unsigned long long block = 0;
    int result = cuMemAlloc_v2(&block, bytes);
    allocs++;
    *pointer = (void *)block;
    return result;
}
int cudaFree(void *pointer)
{
    frees++;
    return cuMemFree_v2((unsigned long long)pointer);
}
__attribute__((destructor)) static void say(void) { printf("%d and %d\n", allocs, frees); }
END
cat > "$TMP/program.c" << 'END'
#include <dlfcn.h>
#include <stddef.h>
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int main(int count, char **words)
{
    void *context, *pointer;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    for (int i = 0; i < 20; i++) {
        if (i == 10 && count > 1 && !dlopen(words[1], RTLD_NOW))
            return 2;
        if (cudaMalloc(&pointer, 4096) || cudaFree(pointer))
            return 3;
    }
    return 0;
}
END
build() { "${CC:-cc}" -Wl,--no-as-needed "$@" -ldl; }
ok "the runtime builds" build -shared -fPIC -o "$TMP/libcudart-counting.so.13" -Wl,-soname,libcudart-counting.so.13 "$TMP/runtime.c" "$SIM_DIR/libcuda.so.1"
ok "the program builds" build -o "$TMP/program" "$TMP/program.c" "$TMP/libcudart-counting.so.13" "$SIM_DIR/libcuda.so.1"
# At its first use CUPTI looks up the driver's tables.
cat > "$TMP/cupti.c" << 'END'
#include <dlfcn.h>
int cuptiGetVersion(void);
int cuptiGetVersion(void) { return 0; }
int cuptiSubscribe(void);
int cuptiSubscribe(void) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetExportTable") == 0; }
END
ok "a CUPTI builds" build -shared -fPIC -o "$TMP/libcupti.so.13" "$TMP/cupti.c"
sed 's/if (i == 10/if (i == 10 \&\& USE() != 0) return 4; else if (i == 10/; 1i int USE(void);' "$TMP/program.c" > "$TMP/using.c"
ok "a program that links it builds" build -o "$TMP/profiled" -DUSE=cuptiSubscribe "$TMP/using.c" "$TMP/libcudart-counting.so.13" "$TMP/libcupti.so.13" "$SIM_DIR/libcuda.so.1"
ok "a program that asks it for its version builds" build -o "$TMP/linked" -DUSE=cuptiGetVersion "$TMP/using.c" "$TMP/libcudart-counting.so.13" "$TMP/libcupti.so.13" "$SIM_DIR/libcuda.so.1"
cat > "$TMP/look_up.c" << 'END'
#include <dlfcn.h>
int look_up(void);
int look_up(void) { return dlsym(dlopen("libcupti.so.13", RTLD_NOW), "cuptiSubscribe") == 0; }
END
ok "a program that looks its functions up builds" build -o "$TMP/looking" -DUSE=look_up "$TMP/using.c" "$TMP/look_up.c" "$TMP/libcudart-counting.so.13" "$SIM_DIR/libcuda.so.1"
cp "$TMP/libcupti.so.13" "$TMP/libsanitizer-public.so"
ok "a program that links a checker builds" build -o "$TMP/checked" "$TMP/program.c" "$TMP/libcudart-counting.so.13" -L"$TMP" -lsanitizer-public "$SIM_DIR/libcuda.so.1"
export LD_LIBRARY_PATH=$TMP
run() { GPUCACHE_REPORT=none preloaded timeout 60 "$@" 2>&1; }
is "without a tool most calls are served before the runtime" "$(run "$TMP/program")" "1 and 1"
is "a profiler is injected" "$(CUDA_INJECTION64_PATH=/opt/libToolsInjection64.so run "$TMP/program")" "20 and 20"
is "the variable is empty" "$(CUDA_INJECTION64_PATH='' run "$TMP/program")" "1 and 1"
is "CUPTI is linked and used halfway" "$(run "$TMP/profiled")" "11 and 11"
is "CUPTI is linked and not used" "$(run "$TMP/linked")" "1 and 1"
is "CUPTI is loaded halfway and not used" "$(run "$TMP/program" libcupti.so.13)" "1 and 1"
is "CUPTI is loaded halfway, and its functions are looked up" "$(run "$TMP/looking")" "11 and 11"

# A memory checker: the allocations are the driver's, unless a mode is set.
mode() {
    CUDA_INJECTION64_PATH=/opt/compute-sanitizer/libsanitizer-collection.so preloaded GPUCACHE_REPORT="$TMP/report.json" "$@" "$TMP/program" > "$TMP/out" 2>&1
    json "$TMP/report.json" 'r["mode"]'
}
is "a memory checker: mode track" "$(mode env)" track
is "a memory checker, and a mode is set" "$(mode env GPUCACHE_MODE=cache)" cache
like "the log says so" "$(GPUCACHE_LOG=info mode env > "$TMP/mode"; cat "$TMP/out")" "memory checker is injected: GPUCACHE_MODE=track"
is "a checker's library is loaded: mode track" "$(preloaded GPUCACHE_REPORT="$TMP/report.json" "$TMP/checked" > "$TMP/out" 2>&1; json "$TMP/report.json" 'r["mode"]')" track
done_testing
