#!/bin/bash
# gpucache doctor: what it finds of the library, the system, the driver and of programs of every kind; each failure has
# something to do, and a driver that crashes or lies takes nothing along.
. "$(dirname "$0")/../lib.sh"

doctor() { simulated "$TOOL" doctor "$@" 2>&1; }
# finding LEVEL TOPIC WORDS PROGRAM…: the JSON has such a finding; what is no "ok" or note of a fact has advice.
cat > "$TMP/finding.py" << 'END'
import json, sys
level, topic, words = sys.argv[1:4]
report = json.load(sys.stdin)
found = [f for f in report["findings"] if f["level"] == level and f["topic"] == topic and words in f["text"]]
for f in report["findings"]:
    if f["level"] == "failure" and not f["advice"]:
        sys.exit("no advice: %s" % f)
if report["failures"] != sum(f["level"] == "failure" for f in report["findings"]):
    sys.exit("failures are miscounted")
if not found:
    sys.exit("\n".join("%(level)s %(topic)s %(text)s" % f for f in report["findings"]))
END
# shellcheck disable=SC2016 # the inner shell expands it
finding() {
    local level=$1 topic=$2 words=$3
    shift 3
    ok "$level: $topic: $words" bash -c '
        set -o pipefail
        out=$(LD_LIBRARY_PATH=$1 '"${before-}"' "$2" doctor --json "${@:7}"); status=$?
        printf "%s\n" "$out" | python3 "$3" "$4" "$5" "$6" || exit 1
        case $out in *"\"failures\": 0"*) [ $status -eq 0 ] ;; *) [ $status -eq 1 ] ;; esac
    ' - "${driver:-$SIM_DIR}" "$TOOL" "$TMP/finding.py" "$level" "$topic" "$words" "$@"
}

finding ok library "can be preloaded"
finding ok driver "supports CUDA 13.0"
finding ok "device 0" "Simulated H200"
finding ok "device 0" "it maps memory"
finding note settings "cudaFree and cuMemFree return at once"
is "a note about frees only where frees do not wait" "$(for one in REUSE=sync MODE=track MODE=off; do
    export GPUCACHE_$one
    doctor | grep -c 'return at once'
    unset "GPUCACHE_${one%=*}"
done | sort -u)" 0
before='SIMCUDA_DEVICES=2 SIMCUDA_PEERS=none' finding note "device 0" "it and device 1 (and maybe others) cannot access"
before='SIMCUDA_DEVICES=2 SIMCUDA_PEERS=none GPUCACHE_BACKEND=vmm' finding warning "device 1" "copies of it to and from device 0 fail"
before='SIMCUDA_DEVICES=2' finding ok "device 1" "it maps memory"
before='SIMCUDA_ATTRIBUTES=133=1' finding note "device 0" "a multi-process server shares the device"
mkdir "$TMP/mps"
touch "$TMP/mps/control"
before="SIMCUDA_DRIVER_VERSION=12030 CUDA_MPS_PIPE_DIRECTORY=$TMP/mps" finding note "device 0" "a multi-process server shares the device"
before='GPUCACHE_BACKEND=driver' finding note "device 0" "GPUCACHE_BACKEND=driver: plain driver allocations"
before='GPUCACHE_MODE=track' finding note "device 0" "GPUCACHE_MODE=track"
before='CUDA_INJECTION64_PATH=/opt/libsanitizer-collection.so' finding note "device 0" "the mode is track"
before='CUDA_INJECTION64_PATH=/opt/libsanitizer-collection.so' finding note loader "a memory checker, /opt/libsanitizer-collection.so"
is "one line decides for a device" "$(for one in A=1 SIMCUDA_ATTRIBUTES=133=1 SIMCUDA_PEERS=none GPUCACHE_BACKEND=vmm GPUCACHE_BACKEND=whole GPUCACHE_MODE=off \
    GPUCACHE_MODE=track CUDA_INJECTION64_PATH=/opt/libsanitizer-collection.so; do
    export SIMCUDA_DEVICES=2 "${one?}"
    simulated "$TOOL" doctor --json | python3 -c '
import json, sys
texts = [f["text"] for f in json.load(sys.stdin)["findings"] if f["topic"] == "device 0"]
print(len([t for t in texts if "map" in t or "back the cache" in t or "cached" in t]))'
    unset SIMCUDA_DEVICES "${one%%=*}"
done | sort -u)" 1
is "one device alone has no peer to miss" "$(SIMCUDA_PEERS=none doctor | grep -c 'cannot access')" 0
before='SIMCUDA_DRIVER_VERSION=12040' finding note driver "before CUDA 12.5 a fence is an event on each stream"
before='GPUCACHE_LIMIT=4XB' finding failure settings "GPUCACHE_LIMIT=4XB"
before='GPUCACHE_LIMT=4GB' finding warning settings "nearest: GPUCACHE_LIMIT"
before='GPUCACHE_LIMIT=4GB' finding ok settings "GPUCACHE_LIMIT=4GB"
before='GPUCACHE_LEDGER=/dev/null' finding failure ledger "/dev/null"
before='LD_PRELOAD='$LIB finding ok loader "LD_PRELOAD names $LIB"
before="bash -c 'ulimit -v 30000000; exec \"\$@\"' -" finding warning limits "addresses are limited"

clients=$BUILD_DIR/tests/clients
finding ok program "linked with the driver" "$clients/driver_linked"
finding ok program "opens the driver itself" "$clients/driver_dlopen"
if [ -e "$clients/vector-shared" ]; then
    finding ok program "shared runtime, libcudart.so.13" "$clients/vector-shared"
    finding ok program "has a static runtime" "$clients/vector-static"
else
    skip "programs of nvcc" "they were not built"
fi

echo 'int main(void) { return 0; }' > "$TMP/main.c"
make_program() { gcc -o "$TMP/$1" "$TMP/main.c" "${@:2}"; }
ok "programs are built" eval 'make_program plain && make_program static -static && make_program setuid &&
    make_program musl -Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1'
make_program chosen -Wl,--dynamic-linker="$TMP/lib/ld-linux-x86-64.so.2"
finding warning program "is not the system's and was not run" "$TMP/chosen"
chmod u+s "$TMP/setuid"
finding note program "none of the objects that" "$TMP/plain"
finding failure program "statically linked" "$TMP/static"
finding failure program "setuid" "$TMP/setuid"
finding failure program "musl" "$TMP/musl"
# The machine's number is at byte 18.
cp "$TMP/plain" "$TMP/foreign"
printf '\363\000' | dd of="$TMP/foreign" bs=1 seek=18 conv=notrunc status=none
finding failure program "another architecture" "$TMP/foreign"
head -c 100 "$TMP/plain" > "$TMP/cut"
chmod +x "$TMP/cut"
ok "a file that is cut does not crash it" bash -c "LD_LIBRARY_PATH='$SIM_DIR' '$TOOL' doctor '$TMP/cut'; [ \$? -le 1 ]"
printf '#!/usr/bin/env -S FOO=1 python3\n' > "$TMP/script"
chmod +x "$TMP/script"
finding ok program "is a script for python3" "$TMP/script"
finding failure program "No such file" "$TMP/nothing"
finding failure program "not an ELF file" "$TMP/main.c"
finding failure program "a folder" "$TMP"
finding failure program "not a regular file" /dev/null
finding failure program "is a shared library, not a program" "$LIB"
if make_program static-pie -static-pie 2> "$TMP/log"; then
    finding failure program "statically linked" "$TMP/static-pie"
else
    skip "a static program that may lie anywhere" "$(tail -n 1 "$TMP/log")"
fi
cp "$TMP/plain" "$TMP/setgid"
chmod g+s "$TMP/setgid"
finding failure program "setgid" "$TMP/setgid"
printf '#!/no/such/interpreter -x\n' > "$TMP/lost"
chmod +x "$TMP/lost"
finding failure program "/no/such/interpreter: No such file" "$TMP/lost"
printf '#!%s/lost\n' "$TMP" > "$TMP/through"
chmod +x "$TMP/through"
finding ok program "through is a script for $TMP/lost" "$TMP/through"
# Programs of other machines, as their own tools make them.
printf '.globl _start\n_start: int3\n' > "$TMP/i386.s"
if as --32 -o "$TMP/i386.o" "$TMP/i386.s" 2> "$TMP/log" && ld -m elf_i386 -o "$TMP/i386" "$TMP/i386.o" 2> "$TMP/log"; then
    finding failure program "another architecture" "$TMP/i386"
else
    skip "a program of 32 bits" "$(tail -n 1 "$TMP/log")"
fi
if command -v aarch64-linux-gnu-gcc > /dev/null && aarch64-linux-gnu-gcc -o "$TMP/aarch64" "$TMP/main.c" 2> "$TMP/log"; then
    finding failure program "another architecture" "$TMP/aarch64"
else
    skip "a program of aarch64" "no cross compiler (Debian: gcc-aarch64-linux-gnu)"
fi
cat > "$TMP/deep.c" << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
int main(void) { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND) == 0; }
END
gcc -o "$TMP/deep" "$TMP/deep.c" -ldl
finding note program "RTLD_DEEPBIND bypass a preload" "$TMP/deep"
echo '#include <dlfcn.h>
int main(void) { return dlopen("libnvidia-encode.so.1", RTLD_NOW) == 0; }' > "$TMP/opens-encoder.c"
gcc -o "$TMP/opens-encoder" "$TMP/opens-encoder.c" -ldl
gcc -shared -fPIC -o "$TMP/libnvidia-encode.so.1" -Wl,-soname,libnvidia-encode.so.1 "$TMP/main.c"
make_program links-encoder -Wl,--no-as-needed -L"$TMP" -l:libnvidia-encode.so.1 -Wl,-rpath,"$TMP"
finding note program "it can use NVENC" "$TMP/opens-encoder"
finding note program "it can use NVENC" "$TMP/links-encoder"
is "a program without NVENC gets no note" "$(doctor "$TMP/plain" | grep -c NVENC)" 0
gcc -shared -fPIC -o "$TMP/libgone.so" "$TMP/main.c"
make_program needs -Wl,--no-as-needed -L"$TMP" -lgone
rm "$TMP/libgone.so"
finding failure program "libgone.so is not found" "$TMP/needs"
echo 'int cuMemAlloc_v2(void) { return 0; }' > "$TMP/other.c"
gcc -shared -fPIC -o "$TMP/libother.so" "$TMP/other.c"
before="CUDA_INJECTION64_PATH=/opt/libprofiler.so" finding note loader "a profiler, /opt/libprofiler.so"
before="LD_PRELOAD=$TMP/libother.so" finding warning loader "intercepts CUDA calls too"

before="LD_PRELOAD=/no/such/lib.so" finding warning loader "LD_PRELOAD names /no/such/lib.so: No such file"
# Another /etc, seen by these processes alone.
mkdir "$TMP/etc"
cp /etc/ld.so.cache "$TMP/etc"
# shellcheck disable=SC2016 # the inner shell expands it
elsewhere() { unshare -m bash -c 'mount --bind "$0" /etc && exec "$@"' "$TMP/etc" "$@"; }
if elsewhere true 2> "$TMP/log"; then
    echo "$LIB" > "$TMP/etc/ld.so.preload"
    is "a machine that loads it everywhere" "$(elsewhere env LD_LIBRARY_PATH="$SIM_DIR" "$TOOL" doctor 2>&1 |
        grep -c '^ok *loader */etc/ld.so.preload names')" 1
else
    skip "a machine that loads it everywhere" "$(tail -n 1 "$TMP/log")"
fi

# Drivers that lie.
mkdir "$TMP/stub" "$TMP/crash" "$TMP/refuse"
echo 'int cuInit(unsigned f) { return (int)f; }' > "$TMP/stub.c"
gcc -shared -fPIC -o "$TMP/stub/libcuda.so.1" "$TMP/stub.c"
cat > "$TMP/full.c" << 'END'
#include <stdlib.h>
int cuInit(unsigned f) { if (getenv("DRIVER_ERROR")) return atoi(getenv("DRIVER_ERROR")); abort(); return (int)f; }
int cuDriverGetVersion(int *v) { *v = 11040; return 0; }
int cuDeviceGetCount(int *c) { *c = 0; return 0; }
int cuDeviceGet(int *d, int o) { *d = o; return 0; }
int cuDeviceGetName(char *n, int b, int d) { (void)n; (void)b; return d; }
int cuDeviceTotalMem_v2(size_t *b, int d) { (void)b; return d; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a; return d; }
int cuDeviceCanAccessPeer(int *c, int d, int p) { *c = 0; return d + p < 0; }
int cuGetErrorName(int e, const char **n) { (void)e; *n = "CUDA_ERROR_OF_A_KIND"; return 0; }
END
gcc -shared -fPIC -o "$TMP/crash/libcuda.so.1" "$TMP/full.c"
driver=$TMP/stub finding failure driver "lacks calls"
driver=$TMP/crash finding failure driver "Aborted"
driver=$TMP/crash before='DRIVER_ERROR=803' finding failure driver "CUDA_ERROR_OF_A_KIND (803)"
driver=$TMP/crash before='DRIVER_ERROR=0' finding failure driver "(100)"
driver=$TMP/crash before='DRIVER_ERROR=0' finding warning driver "older than CUDA 11.8"
driver=$TMP finding warning driver "libcuda.so.1: cannot open"

ok "80 columns" bash -c "LD_LIBRARY_PATH='$SIM_DIR' '$TOOL' doctor '$TMP/static' | awk 'length > 79 { print; bad = 1 } END { exit bad }'"
# On a terminal each level has its colour, unless the user or the terminal has none.
shown() { env LD_LIBRARY_PATH="$SIM_DIR" "$@" script -qec "$TOOL doctor $TMP/static" /dev/null < /dev/null | tr -d '\r'; }
if command -v script > /dev/null; then
    for code in '32mok' '1;31mFAILURE'; do
        ok "on a terminal: $code" test "$(shown TERM=xterm | grep -c "$(printf '\033')\[$code$(printf '\033')\[0m ")" -gt 0
    done
    is "on a terminal: NO_COLOR" "$(shown TERM=xterm NO_COLOR=1 | grep -c "$(printf '\033')")" 0
    is "on a terminal that shows none" "$(shown TERM=dumb | grep -c "$(printf '\033')")" 0
    is "the same words" "$(shown TERM=xterm | sed 's/\x1b\[[0-9;]*m//g')" "$(doctor "$TMP/static")"
else
    skip "on a terminal" "script (Debian: bsdutils) is not installed"
fi
not_ok "an unknown option" doctor --jsn
not_ok "two programs" doctor a b
done_testing
