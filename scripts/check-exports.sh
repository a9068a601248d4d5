#!/bin/bash
# Checks the dynamic symbols of the built library: it exports only names of the table, dlopen, dlclose, dlsym, dlvsym and those of
# gpucache.h; it needs no CUDA library, imports only from libc, and no symbol of a glibc newer than 2.31. The module beside
# it exports its entry point alone.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD_DIR=${BUILD_DIR:-$PWD/build}
lib=${1:-$BUILD_DIR/libgpucache.so}
status=0
complain() {
    echo "$lib: $*"
    status=1
}
# The checks of both objects.
check_object() {
    local name needed foreign locking newer
    needed=$(readelf -d "$lib" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
    for name in $needed; do
        case $name in
        libc.so.6 | libdl.so.2 | libpthread.so.0 | ld-linux*) ;;
        *) complain "needs $name" ;;
        esac
    done
    foreign=$(nm -D --undefined-only "$lib" | awk '{print $NF}' | grep -E '^(cu|cuda|nvml)[A-Z]')
    [ -z "$foreign" ] || complain "leaves undefined: ${foreign//$'\n'/ }"
    # Functions that take the dynamic linker's lock are called by pointers of core/io/elf.c, where scripts/check-layers.sh
    # allows it.
    locking=$(nm -D --undefined-only "$lib" | awk '{print $NF}' |
        grep -E '^(dl(v?sym|m?open|close|addr1?|info)|__cxa_thread_atexit_impl|__tls_get_addr|pthread_exit)(@|$)')
    [ -z "$locking" ] || complain "imports functions that take the dynamic linker's lock: ${locking//$'\n'/ }"
    readelf -d "$lib" | grep -q 'BIND_NOW\|NOW' || complain "is not bound at load"
    readelf -lW "$lib" | grep -q 'GNU_STACK.*RWE' && complain "has an executable stack"
    readelf -d "$lib" | grep -q TEXTREL && complain "has text relocations"
    newer=$(nm -D --undefined-only "$lib" | grep -oE '[A-Za-z0-9_]+@GLIBC_[0-9.]+' | sort -u |
        awk -F'@GLIBC_' '{split($2, v, "."); if (v[1] > 2 || v[2] > 31) print $1 "@" $2}')
    [ -z "$newer" ] || complain "needs a newer glibc than 2.31: ${newer//$'\n'/ }"
    readelf -d "$lib" | grep -q NODELETE || complain "can be unloaded while pointers into it are held"
}
[ -f "$lib" ] || { echo "$lib is not built"; exit 1; }

table=$(printf '#define API(symbol, ...) symbol;\n#define RUNTIME(symbol, ...) symbol;\n#define NVML(symbol, ...) symbol;\n#include "shim/api.def"\n' |
    "${CC:-gcc}" -E -P -I. -x c - | tr -d ' ' | tr ';' '\n' | sed '/^$/d')
exported=$(nm -D --defined-only "$lib" | awk '{print $NF}' | sort)
own=$(printf '#include "core/gpucache.h"\n#define NAME(result, name, parameters) name;\nGPUCACHE_FUNCTIONS(NAME)\n' |
    "${CC:-gcc}" -E -P -I. -DGPUCACHE_NO_PROTOTYPES -x c - | tr ';' '\n' | sed -n 's/^ *\(gpucache_[a-z_]*\) *$/\1/p')
[ -n "$own" ] || complain "gpucache.h lists no functions"
allowed=$(printf '%s\n%s\ndlopen\ndlclose\ndlsym\ndlvsym\n' "$table" "$own" | sort -u)
extra=$(comm -23 <(printf '%s\n' "$exported") <(printf '%s\n' "$allowed"))
[ -z "$extra" ] || complain "exports names that are not in the table: ${extra//$'\n'/ }"
lacking=$(comm -13 <(printf '%s\n' "$exported") <(printf '%s\n' "$allowed"))
[ -z "$lacking" ] || complain "does not export: ${lacking//$'\n'/ }"

check_object
readelf -d "$lib" | grep -q '(SONAME).*\[libgpucache.so\.[0-9]*\]' || complain "has no soname libgpucache.so.N"

lib=${lib%/*}/libgpucache-model.so
if [ -f "$lib" ]; then
    check_object
    exported=$(nm -D --defined-only "$lib" | awk '{print $NF}')
    [ "$exported" = gpucache_model_module ] || complain "exports: ${exported//$'\n'/ }"
    # It is loaded late, where room for more may have run out.
    readelf -lW "$lib" | grep -q TLS && complain "has thread-local variables"
else
    complain "is not built"
fi
exit $status
