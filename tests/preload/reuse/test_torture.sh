#!/bin/bash
# The torture test of reuse, some seconds of it: random programs that are right by CUDA's rules (progs/torture.c), in random
# settings (torture.py), keep every byte, end, and leave no account open. And they find the fault in a library that does not
# wait: each is built here from a copy of the sources in which one check is missing. `make torture` is the long run.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"
seed=${TORTURE_SEED:-$RANDOM}

# tortured WORD… : the programs in random settings; shows what failed.
tortured() {
    BUILD_DIR=$BUILD_DIR python3 "$ROOT/tests/preload/reuse/torture.py" --seed "$seed" "$@"
}

ok "without the library nothing is wrong: the programs themselves are right, seed $seed" tortured --plain --seconds 4
ok "under the library nothing is wrong, seed $seed" tortured --seconds 12

# broken NAME FILE EXPRESSION: a copy of the library with EXPRESSION (of sed) applied to FILE, which must change it, is found.
. "$(dirname "$0")/copy.sh"
broken() {
    local output
    sed -i "$3" "$COPY/$2"
    if cmp -s "$ROOT/$2" "$COPY/$2"; then
        ok "$1: $2 has the place to break" false
        return
    fi
    build_copy || { ok "$1: the copy builds" false; return; }
    output=$(LIB=$COPY/build/libgpucache.so tortured --programs 8 --only streams,passing,synchronous GPUCACHE_MODE=cache \
        GPUCACHE_REUSE=fence SIMCUDA_WORK_US=300 GPUCACHE_BACKEND=driver)
    like "$1: found by what a block held, or by an access to memory that is gone" "$output" 'wrong bytes: |CUDA error 700'
    cp "$ROOT/$2" "$COPY/$2"
}
broken "fences that count as done at once" shim/driver/driver_fence.c \
    's/context, GC_CALL(gc_driver_device(context), cuEventQuery, event));/context, (int)(event == NULL));/'
broken "freed memory that counts as idle at once" core/device/context.h \
    's/return epoch <= atomic_load_explicit(&context->completed, memory_order_acquire);/(void)context; (void)epoch; return true;/'
done_testing
