#!/bin/bash
# Other libraries that stand between a program and CUDA: linked by the program, or preloaded before or after this one.
# Each sees exactly the calls that it sees without this library, whoever makes them and by whichever way, and every call
# is counted once.
. "$(dirname "$0")/../../lib.sh"
forward=$BUILD_DIR/tests/preload/libforward.so
# The calls, in the program itself or in a library of its own.
cat > "$TMP/calls.c" << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuMemFree_v2(unsigned long long);
int calls(const char *way);
static void *find(const char *way, const char *library, const char *name, const char *version)
{
    if (strcmp(way, "default") == 0)
        return dlsym(RTLD_DEFAULT, name);
    if (strcmp(way, "next") == 0)
        return dlsym(RTLD_NEXT, name);
    if (strcmp(way, "version") == 0 && version != NULL)
        return dlvsym(RTLD_DEFAULT, name, version);
    return dlsym(dlopen(library, RTLD_LAZY), name);
}
int calls(const char *way)
{
    int (*alloc)(void **, size_t) = cudaMalloc;
    int (*release)(void *) = cudaFree;
    int (*alloc_driver)(unsigned long long *, size_t) = cuMemAlloc_v2;
    int (*release_driver)(unsigned long long) = cuMemFree_v2;
    int wrong = 0;
    if (strcmp(way, "linked") != 0) {
        *(void **)&alloc = find(way, "libcudart.so.13", "cudaMalloc", "libcudart.so.13");
        *(void **)&release = find(way, "libcudart.so.13", "cudaFree", "libcudart.so.13");
        *(void **)&alloc_driver = find(way, "libcuda.so.1", "cuMemAlloc_v2", NULL);
        *(void **)&release_driver = find(way, "libcuda.so.1", "cuMemFree_v2", NULL);
    }
    for (int i = 0; i < 10; i++) {
        void *pointer = NULL;
        unsigned long long block = 0;
        wrong += alloc(&pointer, 1 << 20) != 0 || pointer == NULL;
        wrong += release(pointer) != 0;
        wrong += alloc_driver(&block, 4096) != 0 || release_driver(block) != 0;
    }
    return wrong;
}
END
cat > "$TMP/program.c" << 'END'
#include <dlfcn.h>
#include <stdio.h>
int calls(const char *way) __attribute__((weak));
int forwarded_count(void) __attribute__((weak));
int forwarded_driver_count(void) __attribute__((weak));
int main(int argc, char **argv)
{
    int (*run)(const char *) = calls;
    if (argc > 2) { /* as PyTorch is loaded: CUDA for all, the caller for itself */
        dlopen("libcudart.so.13", RTLD_NOW | RTLD_GLOBAL);
        dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
        void *module = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
        if (module == NULL || (run = (int (*)(const char *))dlsym(module, "calls")) == NULL)
            return printf("%s\n", dlerror()), 2;
    }
    int wrong = run(argv[1]);
    printf("wrong %d, forwarded %d and %d\n", wrong, forwarded_count ? forwarded_count() : 0,
           forwarded_driver_count ? forwarded_driver_count() : 0);
    return 0;
}
END
cuda=("$SIM_DIR/libcudart.so.13" "$SIM_DIR/libcuda.so.1" "-Wl,-rpath,$SIM_DIR")
build() { "${CC:-cc}" -Wl,--no-as-needed -o "$@" -ldl; }
export LD_LIBRARY_PATH=$SIM_DIR:$TMP
ok "the program builds" build "$TMP/plain" "$TMP/program.c" "$TMP/calls.c" "${cuda[@]}"
ok "the program that links the other library builds" build "$TMP/linked" "$TMP/program.c" "$TMP/calls.c" "$forward" "${cuda[@]}"
ok "the library builds" build "$TMP/libcalls.so" -shared -fPIC "$TMP/calls.c" "${cuda[@]}"
ok "the program with a library builds" build "$TMP/libraried" "$TMP/program.c" "$TMP/libcalls.so"
ok "the program that loads one builds" build "$TMP/loading" "$TMP/program.c"

count='[d["alloc_count"], d["free_count"]] + [sum(a["count"] for n, a in d["by_api"].items() if n.startswith(p)) for p in ("cudaMalloc", "cuMemAlloc")]'
# run NAME WANT PRELOAD WITHOUT PROGRAM…: WITHOUT is what stands in LD_PRELOAD beside this library.
run() {
    local mode without
    without=$(LD_PRELOAD=$4 timeout 120 "${@:5}" 2>&1)
    is "$1: without the library" "$without" "$2"
    for mode in off cache; do
        rm -f "$TMP/report.json"
        is "$1, mode $mode" "$(GPUCACHE_MODE=$mode GPUCACHE_REPORT=$TMP/report.json timeout 120 env \
            LD_PRELOAD="$3" "${@:5}" 2>&1)" "$without"
    done
    is "$1: each is counted once" "$(json "$TMP/report.json" "$count")" "[20, 20, $named]"
}
named="10, 10"
run "no other library" "wrong 0, forwarded 0 and 0" "$LIB" "" "$TMP/plain" linked
run "linked by the program" "wrong 0, forwarded 20 and 20" "$LIB" "" "$TMP/linked" linked
run "preloaded before" "wrong 0, forwarded 20 and 20" "$forward:$LIB" "$forward" "$TMP/plain" linked
# Each of them asks for the next one: every one is called, none twice.
cp "$forward" "$TMP/libsecond.so"
sed "s/forwarded_/uncounted_/" "$ROOT/tests/preload/routes/progs/libforward.c" > "$TMP/uncounted.c"
ok "the second library builds" build "$TMP/libuncounted.so" -shared -fPIC "$TMP/uncounted.c"
run "two, preloaded after" "wrong 0, forwarded 20 and 20" "$LIB:$forward:$TMP/libsecond.so" "$forward:$TMP/libsecond.so" "$TMP/plain" linked
run "two, preloaded after, the second's count" "wrong 0, forwarded 20 and 20" "$LIB:$TMP/libuncounted.so:$forward" "$TMP/libuncounted.so:$forward" "$TMP/plain" linked
run "two, around this one" "wrong 0, forwarded 20 and 20" "$forward:$LIB:$TMP/libsecond.so" "$forward:$TMP/libsecond.so" "$TMP/plain" linked
run "preloaded after" "wrong 0, forwarded 20 and 20" "$LIB:$forward" "$forward" "$TMP/plain" linked
run "preloaded after, called by a library" "wrong 0, forwarded 20 and 20" "$LIB:$forward" "$forward" "$TMP/libraried" linked
run "preloaded before, called by a loaded library" "wrong 0, forwarded 20 and 20" "$forward:$LIB" "$forward" "$TMP/loading" linked "$TMP/libcalls.so"
run "preloaded after, called by a loaded library" "wrong 0, forwarded 20 and 20" "$LIB:$forward" "$forward" "$TMP/loading" linked "$TMP/libcalls.so"
run "pointers of CUDA's own libraries" "wrong 0, forwarded 0 and 0" "$LIB:$forward" "$forward" "$TMP/loading" handle "$TMP/libcalls.so"
named="0, 20" # a pointer to the other library's cudaMalloc does not lead through this one's
for way in default next; do
    run "preloaded after, pointers by $way" "wrong 0, forwarded 20 and 20" "$LIB:$forward" "$forward" "$TMP/plain" $way
done
run "preloaded after, pointers by default, in a loaded library" "wrong 0, forwarded 20 and 20" "$LIB:$forward" "$forward" "$TMP/loading" default "$TMP/libcalls.so"

export LD_PRELOAD=$forward GPUCACHE_REPORT=none
for program in "$TMP/plain linked" "$TMP/libraried linked" "$TMP/loading linked $TMP/libcalls.so"; do
    # shellcheck disable=SC2086 # words
    is "gpucache run: ${program##*/}" "$("$TOOL" run -- $program 2>&1)" "wrong 0, forwarded 20 and 20"
done
done_testing
