#!/bin/bash
# scripts/check-rooms.py refuses what a tree's ROOMS does not allow: an include, also through the face of the tree, a
# call, a struct, a circle, a room too large, a room without a README or with a long one, a name without that of its
# file.
. "$(dirname "$0")/../lib.sh"
tree=$TMP/tree
for room in core/low core/high shim/real tools/base; do mkdir -p "$tree/$room" "$tree/obj/$room"; done
cd "$tree" || exit 1
printf 'low:\nhigh: low\n' > core/ROOMS
printf '.:\nreal: .\n' > shim/ROOMS
printf 'base:\n.: base\n' > tools/ROOMS
touch core/{low,high}/README.md
rooms() { echo "Rooms: \`low\`, \`high\`" > core/README.md; }
rooms
echo 'int gc_low(void);' > core/low/low.h
echo 'int gc_high(void);' > core/high/high.h
source_file() { # source_file PATH TEXT: the source, and its object
    printf '%s\n' "$2" > "$1"
    "${CC:-gcc}" -I. -c -o "obj/${1%.*}.o" "$1"
}
low() { source_file core/low/low.c "int gc_low(void); int gc_low(void) { return 1; }"; }
low
source_file shim/root.c 'int gc_root(void); int gc_root(void) { return 0; }'
source_file tools/main.c 'int main(void) { return 0; }'
source_file core/high/high.c '#include "core/low/low.h"
int gc_high(void); int gc_high(void) { return gc_low(); }'
check() { "$ROOT/scripts/check-rooms.py" --objects obj "$@" > found; }
refuses() { # refuses WHAT TEXT: the check fails with that finding
    not_ok "$1 is refused" check
    ok "and named" grep -qF "$2" found
}
ok "calls and includes that go down pass" check
ok "without a word" test ! -s found

source_file core/low/low.c '#include "core/high/high.h"
int gc_low(void); int gc_low(void) { return 1; }'
refuses "an include that goes up" "core/low/low.c includes core/high/high.h: low may not use high"
ok "a tree that is not named is not checked" check shim tools
low

source_file core/low/low.c 'int gc_high(void); int gc_low(void); int gc_low(void) { return gc_high(); }'
refuses "a call that goes up" "core/low/low.c uses gc_high of core/high/high.c: low may not use high"
low

source_file core/low/one.c 'int gc_one(void); int gc_two(void); int gc_one(void) { return gc_two(); }'
source_file core/low/two.c 'int gc_one(void); int gc_two(void); int gc_two(void) { return gc_one(); }'
refuses "a circle inside a room" "call each other in core/low: one.c two.c"
echo 'halves: low/one.c low/two.c' >> core/ROOMS
not_ok "two halves without a reason are refused" check
sed -i '$s/$/  # one structure, its cold half/' core/ROOMS
ok "two halves of a module may call each other" check

printf '#include "core/low/high_too.h"\n' >> core/low/low.h
printf '#include "core/low/low.h"\n' > core/low/high_too.h
refuses "a circle of headers" "include each other: core/low/high_too.h core/low/low.h"
rm core/low/high_too.h
sed -i '$d' core/low/low.h

echo '#include "core/low/low.h"' > core/core.h
echo '#include "core/core.h"' > core/high/face.h
ok "the face of a tree uses rooms, and rooms above these use it" check
printf '#include "core/high/high.h"\n' > core/more.h
echo '#include "core/more.h"' >> core/core.h
echo '#include "core/core.h"' > core/low/face.h
refuses "an include that goes up through the face" \
    "core/low/face.h includes core/core.h and so core/more.h and so core/high/high.h: low may not use high"
rm core/{low,high}/face.h core/{core,more}.h
source_file core/face.c 'int gc_core_one(void); int gc_core_one(void) { return 1; }'
refuses "a source in the face" "core/face.c: room . is not in core/ROOMS"
rm core/face.c

echo 'struct gc_thing { int size; };' > core/high/thing.h
echo 'struct gc_thing; int gc_low_size(const struct gc_thing *thing); /* struct gc_none */' > core/low/thing.h
refuses "a struct of a room above" "core/low/thing.h names struct gc_thing of core/high/thing.h: low may not use high"
echo 'opaque: low/t*.h gc_thing' >> core/ROOMS
not_ok "an opaque struct without a reason is refused" check
sed -i '$s/$/  # its owner/' core/ROOMS
ok "an opaque struct may be named" check
echo '/* struct gc_thing */' > core/low/other.h
ok "a comment may name any" check
rm core/{low,high}/thing.h core/low/other.h
sed -i '$d' core/ROOMS

echo "Rooms: \`low\`" > core/README.md
refuses "a README of the tree that leaves a room out" "core/README.md does not name the room high"
rooms

mkdir core/lost
echo > core/lost/lost.h
refuses "a room without a line" "core/lost/lost.h: room lost is not in core/ROOMS"
rm -r core/lost
rm core/low/README.md
refuses "a room of core without a README" "core/low: 4 files and no README.md"
seq 41 > core/low/README.md
refuses "a README of more than 40 lines" "core/low/README.md: 41 lines, at most 40"
seq 40 > core/low/README.md
ok "one of 40 lines passes" check
for ((i = 0; i < 26; i++)); do echo > "core/high/more$i.h"; done
refuses "a room of more than 25 files" "core/high: 28 files, at most 25"
rm core/high/more*.h

source_file core/high/high_more.c 'int gc_highs_two(void); int gc_highs_two(void) { return 2; }
int gc_high_more_one(void); int gc_high_more_one(void) { return 1; }
int gc_core_high_one(void); int gc_core_high_one(void) { return 1; }'
ok "a name begins with its file, a part of it, its room or the tree and one of these" check
source_file core/high/high_more.c 'int gc_hig(void); int gc_hig(void) { return 2; }'
refuses "a name that another file's readers would look for" "core/high/high_more.c exports gc_hig: a name begins with"
echo 'names: high/*_more.c hig' >> core/ROOMS
not_ok "further words without a reason are refused" check
sed -i '$s/$/  # rows of a table/' core/ROOMS
ok "further words of a file's names pass" check
rm core/high/high_more.c
sed -i '$d' core/ROOMS

# The other trees, where the root is a room with a line, and assembly is a source like any other.
source_file shim/root.c 'int gc_real(void); int gc_root(void); int gc_root(void) { return gc_real(); }'
source_file shim/real/real.S '.globl gc_real
gc_real: ret
.section .note.GNU-stack,"",%progbits'
refuses "a call from the root into a room above it" "shim/root.c uses gc_real of shim/real/real.S: . may not use real"
source_file shim/root.c 'int gc_root(void); int gc_root(void) { return 0; }'
source_file shim/real/real.S '.globl gc_real
gc_real: jmp gc_root
.section .note.GNU-stack,"",%progbits'
ok "the other way round passes" check
echo '#include "tools/main.h"' > tools/base/tool.h
echo > tools/main.h
refuses "an include of the root's" "tools/base/tool.h includes tools/main.h: base may not use ."
echo > tools/base/tool.h
touch tools/base/{a,b}.h
ok "three files need no README" check
touch tools/base/c.def
refuses "four files without a README" "tools/base: 4 files and no README.md"
touch tools/base/README.md
ok "and with one they pass" check

rm obj/core/low/low.o
not_ok "a source without its object is refused" check
echo 'high: low' > core/ROOMS
not_ok "a room that names one of no line above is refused" check
done_testing
