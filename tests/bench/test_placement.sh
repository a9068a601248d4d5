#!/bin/bash
# Placement of generated problems whose best is known, and of the collected ones. Steps are limited instead of time, so
# that a loaded machine changes nothing.
. "$(dirname "$0")/../lib.sh"

bench=$BUILD_DIR/tests/bench/placement
make=$ROOT/tests/bench/placement_make.py
figure() { sed -n "s/^$2 \([0-9.]*\) .*/\1/p" <<< "$1"; }

# solved KIND COUNT: a generated problem is solved to the optimum.
solved() {
    local file=$TMP/$1.$2 out
    python3 "$make" "$1" "$2" 7 > "$file"
    out=$("$bench" -d 60 -n 3000000 "$file")
    is "$1 of $2 is solved to its optimum" "$(figure "$out" "$1.$2.optimal")" 1
}
for count in 10 60 100; do
    solved guillotine $count
    solved aligned $count
    solved fixed $count
done
solved guillotine 500
for count in 100 1000; do
    solved wide $count
    solved pinwheel $count
done
for count in 10 1000 20000; do
    solved nested $count
    solved staircase $count
done
python3 "$make" guillotine 80 3 > "$TMP/a"
is "the same again" "$("$bench" -n 100000 "$TMP/a" | grep -v seconds)" "$("$bench" -n 100000 "$TMP/a" | grep -v seconds)"
is "two threads find the optimum too" "$(figure "$("$bench" -t 2 -d 60 -n 3000000 "$TMP/a")" a.optimal)" 1

# Too large for exact search: only local search that goes on finds the optimum.
solved random 10000

data=$ROOT/../shared/data/dsa
if [ -d "$data" ]; then
    for name in A B C D F H I K; do
        out=$("$bench" -c 1048576 -d 100 -n 200000 "$data/$name.1048576.csv")
        is "$name fits" "$(figure "$out" "$name.1048576.csv.fits")" 1
    done
    out=$("$bench" -d 100 -n 2600000 "$data/D.1048576.csv")
    ratio=$(figure "$out" D.1048576.csv.ratio)
    ok "D falls to within 2.28 % of its bound ($ratio)" awk "BEGIN { exit !($ratio >= 1 && $ratio <= 1.0228) }"
    for name in iopddl_G_1:50000 somas_resnet50:100000 somas_pangu_2.6B:1500000; do
        steps=${name#*:}
        name=${name%:*}
        out=$("$bench" -d 100 -n "$steps" "$data/$name.csv")
        ratio=$(figure "$out" "$name.csv.ratio")
        ok "$name is within 1 % of its bound ($ratio)" awk "BEGIN { exit !($ratio >= 1 && $ratio <= 1.01) }"
    done
else
    skip "collected problems" "../shared/data/dsa is not there"
fi
done_testing
