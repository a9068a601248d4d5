#!/bin/bash
# Libraries that are loaded with RTLD_DEEPBIND find CUDA before the library: the log and the report say so. Those that do not
# use CUDA, or are loaded without the flag, are not named.
. "$(dirname "$0")/../../lib.sh"
cat > "$TMP/linked.c" << 'END'
int cuMemAlloc_v2(unsigned long long *, unsigned long);
int take(void);
int take(void)
{
    unsigned long long block;
    volatile int result = cuMemAlloc_v2(&block, 1 << 20);
    return result;
}
END
cat > "$TMP/looking.c" << 'END'
#include <dlfcn.h>
int take(void);
int take(void)
{
    unsigned long long block;
    int (*alloc)(unsigned long long *, unsigned long);
    *(void **)&alloc = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuMemAlloc_v2");
    return alloc(&block, 1 << 20);
}
END
echo 'int take(void); int take(void) { return 0; }' > "$TMP/other.c"
cat > "$TMP/program.c" << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, unsigned long);
int main(int argc, char **argv)
{
    unsigned long long block;
    void *context;
    (void)argc;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&block, 4096))
        return 1;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | atoi(argv[2]));
    return library == NULL ? 2 : ((int (*)(void))dlsym(library, "take"))();
}
END
deep=8 # RTLD_DEEPBIND
build() { "${CC:-cc}" -Wl,--no-as-needed "$@"; }
for library in linked looking; do
    ok "lib$library.so builds" build -shared -fPIC -o "$TMP/lib$library.so" "$TMP/$library.c" "$SIM_DIR/libcuda.so.1" -ldl
done
ok "libother.so builds" build -shared -fPIC -o "$TMP/libother.so" "$TMP/other.c"
ok "the program builds" build -o "$TMP/program" "$TMP/program.c" "$SIM_DIR/libcuda.so.1" -ldl
# run LIBRARY FLAG: the allocations that the report counts, and how many warnings name the library, in the log and in the report
run() {
    rm -f "$TMP/report.json"
    preloaded GPUCACHE_REPORT="$TMP/report.json" timeout 60 "$TMP/program" "$TMP/lib$1.so" "$2" 2> "$TMP/log" || echo "failed: $?"
    printf '%s %s %s\n' "$(json "$TMP/report.json" 'd["alloc_count"]')" "$(grep -c "lib$1.so is loaded with RTLD_DEEPBIND" "$TMP/log")" \
        "$(json "$TMP/report.json" "sum('lib$1.so is loaded with RTLD_DEEPBIND' in w for w in r['warnings'])")"
}
is "linked with the driver" "$(run linked $deep)" "1 1 1"
is "opens the driver itself" "$(run looking $deep)" "1 1 1"
is "does not use CUDA" "$(run other $deep)" "1 0 0"
is "linked with the driver, loaded without the flag" "$(run linked 0)" "2 0 0"
is "opens the driver itself, loaded without the flag" "$(run looking 0)" "2 0 0"
done_testing
