#!/bin/bash
# Other libraries that stand between a program and its CUDA runtime: linked by the program, or preloaded before or after
# this one. Every call gets through, once, to everyone.
. "$(dirname "$0")/../../lib.sh"
forward=$BUILD_DIR/tests/preload/libforward.so
cat > "$TMP/program.c" << 'END'
#include <stddef.h>
#include <stdio.h>
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuMemFree_v2(unsigned long long);
int forwarded_count(void) __attribute__((weak));
int main(void)
{
    unsigned long long block = 0;
    int wrong = 0;
    for (int i = 0; i < 10; i++) {
        void *pointer = NULL;
        wrong += cudaMalloc(&pointer, 1 << 20) != 0 || pointer == NULL;
        wrong += cudaFree(pointer) != 0;
    }
    wrong += cuMemAlloc_v2(&block, 4096) != 0 || cuMemFree_v2(block) != 0;
    printf("wrong %d, forwarded %d\n", wrong, forwarded_count ? forwarded_count() : 0);
    return 0;
}
END
build() { "${CC:-cc}" -Wl,--no-as-needed -o "$1" "$TMP/program.c" "${@:2}" "$SIM_DIR/libcudart.so.13" "$SIM_DIR/libcuda.so.1" -Wl,-rpath,"$SIM_DIR"; }
ok "the program builds" build "$TMP/plain"
ok "the program that links the other library builds" build "$TMP/linked" "$forward"

# run NAME WANT PRELOAD PROGRAM
run() {
    local mode
    for mode in off cache; do
        rm -f "$TMP/report.json"
        is "$1, mode $mode" "$(GPUCACHE_MODE=$mode GPUCACHE_REPORT=$TMP/report.json timeout 120 env \
            LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$3" "$4" 2>&1)" "$2"
    done
    is "$1: each is counted once" "$(json "$TMP/report.json" \
        '[d["alloc_count"], d["free_count"], d["by_api"]["cudaMalloc"]["count"], d["by_api"]["cuMemAlloc_v2"]["count"]]')" \
        "[11, 11, 10, 1]"
}
run "no other library" "wrong 0, forwarded 0" "$LIB" "$TMP/plain"
run "linked by the program" "wrong 0, forwarded 20" "$LIB" "$TMP/linked"
run "preloaded before" "wrong 0, forwarded 20" "$forward:$LIB" "$TMP/plain"
run "preloaded after" "wrong 0, forwarded 20" "$LIB:$forward" "$TMP/plain"
# Each of them asks for the next one: nobody is called twice.
cp "$forward" "$TMP/libsecond.so"
run "two, preloaded after" "wrong 0, forwarded 20" "$LIB:$forward:$TMP/libsecond.so" "$TMP/plain"
run "two, around this one" "wrong 0, forwarded 20" "$forward:$LIB:$TMP/libsecond.so" "$TMP/plain"
done_testing
