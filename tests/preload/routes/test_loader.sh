#!/bin/bash
# A thread's first calls and its end go on while another thread holds the dynamic linker's lock: a constructor that waits for it.
# What takes that lock is where scripts/check-layers.sh allows it; here each setting shows that no way of the thread's leads there.
# timeout: 400
# waits: for constructors that wait
. "$(dirname "$0")/../../lib.sh"
program=$BUILD_DIR/tests/preload/loader
library=$BUILD_DIR/tests/preload/libwaits.so
export GPUCACHE_REPORT=none
echo '{"tensors": [{"name": "w", "dtype": "F16", "shape": [1024, 1024]}]}' > "$TMP/model.json"

# A library with the driver among its dependencies, whose constructor waits for a thread's first CUDA calls: the library starts
# in that thread.
cat > "$TMP/first.c" << 'END'
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, unsigned long);
int cuMemFree_v2(unsigned long long);
static void *run(void *unused)
{
    unsigned long long block;
    void *context;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&block, 4096) || cuMemFree_v2(block))
        puts("an error");
    return unused;
}
static __attribute__((constructor)) void wait_for_thread(void)
{
    struct timespec end;
    pthread_t thread;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    if (pthread_create(&thread, 0, run, 0) == 0 && pthread_timedjoin_np(thread, 0, &end) != 0)
        _exit(3);
}
END
cat > "$TMP/opens.c" << 'END'
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words)
{
    for (int i = 1; i < count; i++)
        if (dlopen(words[i], RTLD_NOW) == 0)
            return 2;
    puts("opened");
    return 0;
}
END
"${CC:-cc}" -shared -fPIC -o "$TMP/libfirst.so" "$TMP/first.c" -Wl,--no-as-needed "$SIM_DIR/libcuda.so.1" -lpthread || exit 1
"${CC:-cc}" -o "$TMP/opens" "$TMP/opens.c" -ldl || exit 1

plain=$(simulated timeout 60 "$program" "$library" 2>&1)
like "without the library" "$plain" '^loaded$'
is "without the library, first calls" "$(simulated timeout 60 "$TMP/opens" "$TMP/libfirst.so" 2>&1)" opened
for settings in GPUCACHE_MODE=cache GPUCACHE_MODE=track GPUCACHE_MODE=off "GPUCACHE_STACKS=all GPUCACHE_LOG=error" "GPUCACHE_STACKS=leaks GPUCACHE_LOG=error" GPUCACHE_LIMIT=1G GPUCACHE_REUSE=sync GPUCACHE_BACKEND=driver GPUCACHE_DEBUG=poison \
    GPUCACHE_TENANTS=a=loader:1G "GPUCACHE_TENANTS=a=*:1G" "GPUCACHE_MODEL=$TMP/model.json GPUCACHE_LOG=error" "GPUCACHE_GROUP=g$$ GPUCACHE_GROUP_LIMIT=1G" "GPUCACHE_TRACE=$TMP/trace"; do
    # shellcheck disable=SC2086 # several settings
    is "$settings" "$(preloaded $settings timeout 60 "$program" "$library" 2>&1)" "$plain"
    # shellcheck disable=SC2086
    is "$settings, first calls" "$(preloaded $settings timeout 60 "$TMP/opens" "$TMP/libfirst.so" 2>&1 | grep -v 'module that reads models cannot be loaded: another thread')" opened
done
is "first calls, the driver is loaded" "$(preloaded timeout 60 "$TMP/opens" libcuda.so.1 "$TMP/libfirst.so" 2>&1)" opened

# In the thread that loads: what the library needs is opened as ever.
cat > "$TMP/own.c" << 'END'
int cuInit(unsigned);
static __attribute__((constructor)) void start(void) { cuInit(0); }
END
"${CC:-cc}" -shared -fPIC -o "$TMP/libown.so" "$TMP/own.c" -Wl,--no-as-needed "$SIM_DIR/libcuda.so.1" || exit 1
is "a constructor's own call, a model" "$(preloaded GPUCACHE_MODEL="$TMP/model.json" GPUCACHE_GATE=deny timeout 60 "$TMP/opens" "$TMP/libown.so" 2>&1 | grep -c 'cannot be loaded')" 0

# The driver was found without a reference of the library's own: it stays loaded though the program unloads it.
cat > "$TMP/again.c" << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
static int init(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*start)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int result = start(0);
    dlclose(library);
    return result;
}
int main(void)
{
    int results = init() + init();
    printf("%d, %s\n", results, dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) ? "kept" : "unloaded");
    return 0;
}
END
"${CC:-cc}" -o "$TMP/again" "$TMP/again.c" -ldl || exit 1
is "the driver stays loaded" "$(preloaded timeout 60 "$TMP/again" 2>&1)" "0, kept"
done_testing
