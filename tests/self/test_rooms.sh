#!/bin/bash
# scripts/check-rooms.py refuses what core/ROOMS does not allow: an include, a call, a circle, a room too large.
. "$(dirname "$0")/../lib.sh"
tree=$TMP/tree
mkdir -p "$tree/core/low" "$tree/core/high" "$tree/obj/core/low" "$tree/obj/core/high"
cd "$tree" || exit 1
printf 'low:\nhigh: low\n' > core/ROOMS
echo 'int gc_low(void);' > core/low/low.h
echo 'int gc_high(void);' > core/high/high.h
source_file() { # source_file PATH TEXT: the source, and its object
    printf '%s\n' "$2" > "core/$1"
    "${CC:-gcc}" -I. -c -o "obj/core/${1%.c}.o" "core/$1"
}
low() { source_file low/low.c "int gc_low(void); int gc_low(void) { return 1; }"; }
low
source_file high/high.c '#include "core/low/low.h"
int gc_high(void); int gc_high(void) { return gc_low(); }'
check() { "$ROOT/scripts/check-rooms.py" --objects obj "$@" > found; }
refuses() { # refuses WHAT TEXT: the check fails, and says so
    not_ok "$1 is refused" check
    ok "and named" grep -qF "$2" found
}
ok "calls and includes that go down" check
ok "of which nothing is said" test ! -s found

source_file low/low.c '#include "core/high/high.h"
int gc_low(void); int gc_low(void) { return 1; }'
refuses "an include that goes up" "core/low/low.c includes core/high/high.h: low may not use high"
cp found known
ok "unless it is known" check --known known
low
not_ok "which fails once it is gone" check --known known

source_file low/low.c 'int gc_high(void); int gc_low(void); int gc_low(void) { return gc_high(); }'
refuses "a call that goes up" "core/low/low.c uses gc_high of core/high/high.c: low may not use high"
low

source_file low/one.c 'int gc_one(void); int gc_two(void); int gc_one(void) { return gc_two(); }'
source_file low/two.c 'int gc_one(void); int gc_two(void); int gc_two(void) { return gc_one(); }'
refuses "a circle inside a room" "call each other in room low: one.c two.c"
echo 'halves: low/one.c low/two.c' >> core/ROOMS
not_ok "two halves without a reason are refused" check
sed -i '$s/$/  # one structure, its cold half/' core/ROOMS
ok "two halves of a module may call each other" check

printf '#include "core/low/high_too.h"\n' >> core/low/low.h
printf '#include "core/low/low.h"\n' > core/low/high_too.h
refuses "a circle of headers" "include each other: core/low/high_too.h core/low/low.h"
rm core/low/high_too.h
sed -i '$d' core/low/low.h

mkdir core/lost
echo > core/lost/lost.h
refuses "a room without a line" "core/lost/lost.h: room lost is not in core/ROOMS"
rm -r core/lost
for ((i = 0; i < 26; i++)); do echo > "core/high/more$i.h"; done
refuses "a room of more than 25 files" "core/high: 28 files, at most 25"
rm core/high/more*.h

rm obj/core/low/low.o
not_ok "a source without its object is refused" check
echo 'high: low' > core/ROOMS
not_ok "a room that names one of no line above is refused" check
done_testing
