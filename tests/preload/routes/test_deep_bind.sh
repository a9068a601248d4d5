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
# A library whose dependency uses CUDA.
cat > "$TMP/outer.c" << 'END'
int inner(void);
int take(void);
int take(void) { return inner(); }
END
sed 's/take/inner/g' "$TMP/linked.c" > "$TMP/inner.c"
ok "libinner.so builds" build -shared -fPIC -o "$TMP/libinner.so" "$TMP/inner.c" "$SIM_DIR/libcuda.so.1"
ok "libouter.so builds" build -shared -fPIC -o "$TMP/libouter.so" "$TMP/outer.c" "$TMP/libinner.so" -Wl,-rpath,"$TMP"
run outer $deep > "$TMP/got"
is "a dependency is linked with the driver" "$(cat "$TMP/got"; grep -c "libinner.so is loaded with RTLD_DEEPBIND" "$TMP/log"; grep -c . "$TMP/log")" "1 0 0
1
1"
is "a dependency, loaded without the flag" "$(run outer 0)" "2 0 0"
# Loads that fail, the driver itself as Julia opens it, and names of any length leave room for the next.
cat > "$TMP/many.c" << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
static double look_up(void)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < 10000; i++)
        dlsym(RTLD_DEFAULT, "malloc");
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec);
}
static long peak(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}
int main(int argc, char **argv)
{
    void *context;
    if (argc < 3 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    look_up();
    double before = look_up(), after;
    for (int i = 0; i < 100; i++)
        if (dlopen("libnosuch.so", RTLD_NOW | RTLD_DEEPBIND))
            return 2;
    after = look_up();
    for (int i = 0; i < 3 && after > 3 * before; i++)
        after = look_up();
    if (after > 3 * before)
        printf("look-ups take %.0f ns, %.0f before\n", after / 10000, before / 10000);
    long resident = peak();
    if (argc > 3 && (dlopen(argv[3], RTLD_NOW | RTLD_DEEPBIND) == 0 || !dlsym(RTLD_DEFAULT, "malloc") || peak() - resident > 32 << 10))
        return 3;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    return library == NULL ? 4 : strcmp(argv[2], "call") ? 0 : ((int (*)(void))dlsym(library, "take"))();
}
END
ok "another program builds" build -o "$TMP/many" "$TMP/many.c" "$SIM_DIR/libcuda.so.1" -ldl
many() {
    preloaded GPUCACHE_REPORT=none timeout 60 "$TMP/many" "$@" 2> "$TMP/log" || echo "failed: $?"
    cat "$TMP/log"
}
like "after a hundred loads that fail the next is noticed, and look-ups are as fast" "$(many "$TMP/liblinked.so" call)" "^gpucache: liblinked.so is loaded with RTLD_DEEPBIND"
is "nothing else is said" "$(grep -vc "liblinked.so is" "$TMP/log")" 0
is "the driver itself is none" "$(many libcuda.so.1 no)" ""
long=$(printf 'x%.0s' {1..200})
cp "$TMP/liblinked.so" "$TMP/lib$long.so"
like "a long name" "$(many "$TMP/lib$long.so" call)" "is loaded with RTLD_DEEPBIND"
# Of a large library little is read: 128 MiB of device code.
cat > "$TMP/large.c" << 'END'
#include <dlfcn.h>
void *find(const char *name);
void *find(const char *name) { return dlsym(RTLD_DEFAULT, name); }
__asm__(".section .nv_fatbin, \"a\"\n.zero 134217728\n.previous");
END
ok "a large library builds" build -shared -fPIC -o "$TMP/liblarge.so" "$TMP/large.c" -ldl
like "a large library is not read as a whole" "$(many "$TMP/liblinked.so" call "$TMP/liblarge.so")" "^gpucache: liblinked.so is loaded with RTLD_DEEPBIND"
is "linked with the driver, loaded without the flag" "$(run linked 0)" "2 0 0"
is "opens the driver itself, loaded without the flag" "$(run looking 0)" "2 0 0"
done_testing
