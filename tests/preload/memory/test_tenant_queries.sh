#!/bin/bash
# The free and total memory that a tenant's object is told: its own limit, by the runtime's and the driver's query, and by a
# runtime that the library does not stand before.
. "$(dirname "$0")/../../lib.sh"
cat > "$TMP/tenant.c" << 'END'
#include <dlfcn.h>
#include <stddef.h>
int cudaMalloc(void **, size_t);
int cudaMemGetInfo(size_t *, size_t *);
int cuMemGetInfo_v2(size_t *, size_t *);
int take(void);
unsigned long total(int way);
int take(void)
{
    void *pointer;
    volatile int result = cudaMalloc(&pointer, 1 << 20);
    return result;
}
unsigned long total(int way)
{
    size_t free_bytes = 0, total_bytes = 0;
    int (*query)(size_t *, size_t *) = way == 0 ? cudaMemGetInfo : cuMemGetInfo_v2;
    if (way == 2)
        *(void **)&query = dlsym(dlopen("libcudart-second.so.13", RTLD_LAZY), "cudaMemGetInfo");
    return query == NULL || query(&free_bytes, &total_bytes) != 0 ? 0 : (unsigned long)(total_bytes >> 20);
}
END
cat > "$TMP/program.c" << 'END'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        void *object = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (object == NULL || ((int (*)(void))dlsym(object, "take"))() != 0)
            return 1;
        for (int way = 0; way < 3; way++)
            printf("%lu ", ((unsigned long (*)(int))dlsym(object, "total"))(way));
        puts("");
    }
    return 0;
}
END
build() { "${CC:-cc}" "$@" -ldl -lpthread; }
ok "a second runtime builds" build -shared -o "$TMP/libcudart-second.so.13" -Wl,-soname,libcudart-second.so.13 \
    -Wl,--version-script,"$ROOT/tests/simcuda/runtime/runtime.map" "$BUILD_DIR"/obj/tests/simcuda/runtime/*.o
ok "a tenant builds" build -shared -fPIC -o "$TMP/libone.so" "$TMP/tenant.c" "$SIM_DIR/libcudart.so.13" "$SIM_DIR/libcuda.so.1"
cp "$TMP/libone.so" "$TMP/libtwo.so"
ok "the program builds" build -o "$TMP/program" "$TMP/program.c"
export LD_LIBRARY_PATH=$TMP GPUCACHE_REPORT=none
is "each tenant is told its own limit" "$(preloaded GPUCACHE_TENANTS='one=libone.so:1GiB,two=libtwo.so:2GiB,rest=*:3GiB' \
    timeout 60 "$TMP/program" "$TMP/libone.so" "$TMP/libtwo.so" "$TMP/libone.so" 2>&1)" $'1024 1024 1024 \n2048 2048 2048 \n1024 1024 1024 '
done_testing
