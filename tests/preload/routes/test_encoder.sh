#!/bin/bash
# A program that uses NVENC gets memory that the encoder can register: the driver's own allocations, from the moment at which
# the encoder is loaded or looked up.
. "$(dirname "$0")/../../lib.sh"
cat > "$TMP/program.c" << 'END'
#include <dlfcn.h>
#include <string.h>
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, unsigned long);
int main(int argc, char **argv)
{
    unsigned long long block;
    void *context;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&block, 3 << 20))
        return 1;
    if (argc > 2 && strcmp(argv[1], "load") == 0 && dlopen(argv[2], RTLD_NOW) == 0)
        return 2;
    if (argc > 1 && strcmp(argv[1], "look") == 0)
        dlsym(RTLD_DEFAULT, "NvEncodeAPICreateInstance");
    return cuMemAlloc_v2(&block, 5 << 20);
}
END
build() { "${CC:-cc}" -Wl,--no-as-needed "$@" -ldl; }
echo 'int NvEncodeAPICreateInstance(void); int NvEncodeAPICreateInstance(void) { return 0; }' > "$TMP/encoder.c"
ok "an encoder builds" build -shared -fPIC -o "$TMP/libnvidia-encode.so.1" -Wl,-soname,libnvidia-encode.so.1 "$TMP/encoder.c"
ok "the program builds" build -o "$TMP/program" "$TMP/program.c" "$SIM_DIR/libcuda.so.1"
ok "the program with an encoder builds" build -o "$TMP/linked" "$TMP/program.c" "$TMP/libnvidia-encode.so.1" "$SIM_DIR/libcuda.so.1"
export LD_LIBRARY_PATH=$TMP
# run PROGRAM…: how many of the driver's own allocations were made
run() {
    rm -f "$TMP/journal"
    SIMCUDA_JOURNAL=$TMP/journal GPUCACHE_REPORT=none GPUCACHE_LOG=info preloaded timeout 60 "$@" 2> "$TMP/log" || echo "failed: $?"
    printf '%s %s\n' "$(grep -c ' cuMemAlloc_v2 ' "$TMP/journal")" "$(grep -c 'the program uses NVENC' "$TMP/log")"
}
is "without an encoder memory is mapped" "$(run "$TMP/program")" "0 0"
is "the encoder is loaded" "$(run "$TMP/program" load libnvidia-encode.so.1)" "1 1"
is "the encoder is looked up" "$(run "$TMP/program" look)" "1 1"
echo 'int NvEncodeAPICreateInstance(void); int plug(void); int plug(void) { return NvEncodeAPICreateInstance(); }' > "$TMP/plug.c"
ok "a library that needs an encoder builds" build -shared -fPIC -o "$TMP/libplug.so" "$TMP/plug.c" "$TMP/libnvidia-encode.so.1"
is "another library brings the encoder" "$(run "$TMP/program" load libplug.so)" "1 1"
is "the encoder cannot be loaded" "$(run "$TMP/program" load libnvidia-encode.so.99)" "failed: 2
0 0"
is "the encoder is linked" "$(run "$TMP/linked")" "2 1"
done_testing
