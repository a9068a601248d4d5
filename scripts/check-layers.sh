#!/bin/bash
# The layers: shim → core ← tools, and core knows no CUDA. Includes point downward.
set -u
cd "$(dirname "$0")/.." || exit 1
status=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# without_comments FOLDER: each line of its sources as FILE:NUMBER:TEXT. Strings stay, so that #include lines do.
without_comments() {
    # shellcheck disable=SC2016 # perl's variables
    find "$1" \( -name '*.[chS]' -o -name '*.def' \) -print0 | LC_ALL=C sort -z | xargs -0 perl -0777 -ne '
        s{/\*.*?\*/}{my $c = $&; $c =~ s/[^\n]//g; $c}gse;
        s{//[^\n]*}{}g;
        my $number = 0;
        print "$ARGV:", ++$number, ":$_\n" for split /\n/'
}
# forbid FOLDER REGEX WHY [FILE…]: no source line in the folder, comments and those files apart, matches.
forbid() {
    local folder=$1 regex=$2 why=$3 lines=$work/${1//\//-} found IFS='|'
    [ -d "$folder" ] || return 0
    [ -e "$lines" ] || without_comments "$folder" > "$lines"
    if found=$(grep -E "$regex" "$lines" | grep -vE "^(${*:4}):"); then
        printf '%s\n%s\n' "$why" "$found"
        status=1
    fi
}

forbid core '#[[:space:]]*include[[:space:]]*[<"](cuda|nvml|cu[A-Z])' 'core includes no CUDA header:'
forbid core '(^|[^A-Za-z0-9_".])(cu|cuda|nvml)[A-Z][A-Za-z0-9]*(_v[0-9]+)?[[:space:]]*\(' 'core calls no CUDA function:'
forbid core '#[[:space:]]*include[[:space:]]*"(shim|tools|tests)/' 'core includes only core:'
forbid shim '#[[:space:]]*include[[:space:]]*"(tools|tests)/' 'the shim includes only core and shim:'
model_rooms=$(sed -nE '/^model:/,$s/^([a-z]+): .*/\1/p' core/ROOMS | grep -vxE 'opaque|names|halves' | paste -sd '|')
forbid shim "#[[:space:]]*include[[:space:]]*\"core/($model_rooms)/" 'rooms that read models are not preloaded:'
forbid tools '#[[:space:]]*include[[:space:]]*"(shim|tests)/' 'tools include only core and tools:'
forbid tools '#[[:space:]]*include[[:space:]]*[<"](cuda|nvml)' 'tools include no CUDA header:'
forbid tests/simcuda '#[[:space:]]*include[[:space:]]*"(core|shim|tools)/' 'the simulated device shares nothing with the library:'
# The library must not end its host program. The one abort is GC_ASSERT's, which is in check builds only.
for folder in core shim; do
    forbid $folder '(^|[^A-Za-z0-9_.>])(exit|abort|quick_exit|assert|__assert_fail)[[:space:]]*\(' \
        "$folder never ends the host program:" core/base/assert.c
done
# Functions that take the dynamic linker's lock: its holder may wait for the calling thread (a constructor). Allowed in:
# shim/real/open.c         what the library opens for itself: waits for the lock a bounded time
# shim/intercept/route.c   what the program itself looks up, opens and closes: it takes the lock anyway
# core/observe/unwind.c    gc_elf_backtrace, once shim/real/open.c has opened the unwinder
# core/io/elf_object.c     gc_elf_backtrace itself
# core/io/elf.c            the pointers to them; core/gpucache.h: runs in programs
# All other code uses core/io/elf.h. scripts/check-exports.sh checks the imports, tests/preload/routes/test_loader.sh for
# hangs.
takes_lock='(^|[^A-Za-z0-9_"])((libc->|gc_elf_libc\(\)->)?(dl(v?sym|m?open|close|addr1?|info)'
takes_lock+='|(gc_elf_)?backtrace(_symbols(_fd)?)?|__cxa_thread_atexit_impl)'
takes_lock+='|pthread_(exit|cancel)|thrd_exit|iconv_open|getaddrinfo|get(pw|gr)[a-z_]+)[[:space:]]*\(|libc->dl'
for folder in core shim; do
    forbid $folder "$takes_lock" "$folder takes the dynamic linker's lock only where it is known to be free:" \
        shim/real/open.c shim/intercept/route.c core/observe/unwind.c core/io/elf.c core/io/elf_object.c core/io/elf_object.h \
        core/gpucache.h
done
# Every free needs a fence from then on: never without a reason that the log and the report give (shim/real/unseen.def).
forbid shim '(^|[^A-Za-z0-9_"])gc_submit_set_conservative[[:space:]]*\(' \
    'frees become conservative with a reason only, by gc_unseen_add:' shim/real/unknown.c
# These take locks. They are called under a mark, gc_elf_is_walking, which the end of the process checks.
for folder in core shim; do
    forbid $folder '(^|[^A-Za-z0-9_"])(dl_iterate_phdr([^A-Za-z0-9_"]|$)|(backtrace|_Unwind_[A-Z][A-Za-z]*)[[:space:]]*\()' \
        'loaded objects and stacks are walked by gc_elf_walk and gc_elf_backtrace:' core/io/elf_object.c
done
forbid core '(^|[^A-Za-z0-9_"])gc_elf_libc[[:space:]]*\(' \
    'core looks up symbols by core/io/elf.h, not libc:' core/io/elf.c core/io/elf.h
exit $status
