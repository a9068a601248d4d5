#!/bin/bash
# Runtimes under other file names: tools that repair Python wheels rename libcudart.so.13 to libcudart-<hash>.so.13, its SONAME
# and the names by which its users need it. A library calls the runtime that it depends on; each is known as a runtime, and
# where nothing shows that it is one, its calls still reach it.
. "$(dirname "$0")/../../lib.sh"
objects=("$BUILD_DIR"/obj/tests/simcuda/runtime/*.o)
versions=-Wl,--version-script,$ROOT/tests/simcuda/runtime/runtime.map
cat > "$TMP/calls.c" << 'END'
#include <stddef.h>
#include <stdio.h>
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMallocPitch(void **, size_t *, size_t, size_t);
int calls(void);
int calls(void)
{
    int wrong = 0;
    for (int i = 0; i < 10; i++) {
        void *pointer = NULL;
        size_t pitch;
        wrong += cudaMalloc(&pointer, 1 << 20) != 0 || pointer == NULL;
        wrong += cudaFree(pointer) != 0;
        wrong += cudaMallocPitch(&pointer, &pitch, 100, 100) != 0 || cudaFree(pointer) != 0;
    }
    return wrong;
}
END
# Calls the libraries' functions; a runtime itself is called by pointers.
cat > "$TMP/program.c" << 'END'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        void *module = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL), *pointer = NULL;
        if (module == NULL)
            return printf("%s\n", dlerror()), 2;
        int (*calls)(void) = (int (*)(void))dlsym(module, "calls");
        int (*alloc)(void **, size_t) = (int (*)(void **, size_t))dlsym(module, "cudaMalloc");
        int (*release)(void *) = (int (*)(void *))dlsym(module, "cudaFree");
        printf("wrong %d\n", calls != NULL ? calls() : (alloc(&pointer, 4096) != 0) + (release(pointer) != 0));
    }
    return 0;
}
END
build() { "${CC:-cc}" "$@" -ldl -lpthread; }
export LD_LIBRARY_PATH=$TMP:$SIM_DIR
ok "the program builds" build -o "$TMP/program" "$TMP/program.c"
# runtime FILE [OPTION]: a runtime of that name, and lib<FILE's middle>-user.so, which needs it
runtime() {
    ok "runtime $1 builds" build -shared -o "$TMP/$1" -Wl,-soname,"$1" "${@:2}" "${objects[@]}"
    ok "a user of $1 builds" build -shared -fPIC -o "$TMP/user-of-$1" "$TMP/calls.c" "$TMP/$1"
}
runtime libcudart-8b3d0d5a.so.13.0.48 "$versions"
runtime libcudart-77e1c2b0.so.13.0.96 "$versions"
runtime libcudart-plain.so.13
runtime librt13.so "$versions"
runtime libunknown.so

# by_api NAME…: how many calls the report has under each name
counts='[d["by_api"].get(n, {"count": 0})["count"] for n in ("cudaMalloc", "cudaMallocPitch", "cuMemAlloc_v2")], d["free_count"]'
# run NAME COUNTS FILE…
run() {
    local plain
    plain=$("$TMP/program" "${@:3}" 2>&1)
    rm -f "$TMP/report.json"
    is "$1: answers as without the library" "$(GPUCACHE_REPORT=$TMP/report.json LD_PRELOAD=$LIB timeout 60 "$TMP/program" "${@:3}" 2>&1)" "$plain"
    like "$1: no call fails" "$plain" '^wrong 0$'
    is "$1: counted by the names called" "$(json "$TMP/report.json" "$counts")" "$2"
}
first=libcudart-8b3d0d5a.so.13.0.48 second=libcudart-77e1c2b0.so.13.0.96
for runtime in $first libcudart-plain.so.13 librt13.so; do
    run "$runtime, needed by a local library" "[[10, 10, 0], 20]" "$TMP/user-of-$runtime"
    run "$runtime, loaded itself" "[[1, 0, 0], 1]" "$TMP/$runtime"
done
run "two at once" "[[20, 20, 0], 40]" "$TMP/user-of-$first" "$TMP/user-of-$second"
run "under its own name beside another" "[[11, 10, 0], 21]" libcudart.so.13 "$TMP/user-of-$first"
# Nothing tells that it is a runtime.
run "a runtime that is not known as one" "[[10, 10, 0], 20]" "$TMP/user-of-libunknown.so"
run "the same, loaded itself" "[[0, 0, 1], 1]" "$TMP/libunknown.so"
GPUCACHE_REPORT=none like "doctor knows it" "$("$TOOL" doctor "$TMP/user-of-$first" 2>&1)" "$first"
done_testing
