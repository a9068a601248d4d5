#!/bin/bash
# gpucache plan: its command line, problems, and what it writes: text, JSON, CSV, a picture. Every plan goes through
# check_plan.py, which shares nothing with it.
. "$(dirname "$0")/../lib.sh"
check="$ROOT/tests/planner/check_plan.py"
cd "$TMP" || exit 1

# fails STATUS TEXT ARGUMENTS…: `gpucache plan ARGUMENTS` ends so with that text in one line, nothing on stdout.
fails() {
    local status=$1 text=$2
    shift 2
    "$TOOL" plan "$@" > out 2> err
    is "plan $*: status" $? "$status"
    ok "plan $*: $text" grep -qF -- "$text" err
    is "plan $*: one line" "$(wc -l < err)$(cat out)" 1
}

printf 'id,lower,upper,size\na,0,2,100\nb,1,3,50\nc,2,4,100\n' > three.csv

# ---- a byte order mark ----
{ printf '\xef\xbb\xbf'; cat three.csv; } > marked.csv
is "a byte order mark: the same plan" "$("$TOOL" plan marked.csv --nodes 100 --output -)" "$("$TOOL" plan three.csv --nodes 100 --output -)"
printf 'op,id,bytes,stream,time_us\na,1,512,0,0\nf,1,0,0,1\n' > trace.csv
{ printf '\xef\xbb\xbf'; cat trace.csv; } > marked.csv
ok "a byte order mark: a trace" "$TOOL" replay marked.csv
printf 'id,lower,upper,size,alignment\na,0,2,100,\nb,1,3,50,64\n' > some.csv
ok "some have an alignment" "$TOOL" plan some.csv --output placed.csv
ok "the output is an input" "$TOOL" plan placed.csv

# ---- the command line ----
fails 2 'a file is missing'
fails 2 'unknown option --bogus' three.csv --bogus
fails 2 'one file, not also b.csv' three.csv b.csv
for option in --capacity --output --svg --deadline --alignment --threads --seed --nodes --dim --batch --seq-len --weights --inputs --outputs; do
    fails 2 "$option needs a value" three.csv $option
    fails 2 "$option needs a value" three.csv $option=
    [ $option = --dim ] || fails 2 "$option is given twice" three.csv $option 1 $option 1
done
for value in 0 x -1 4Q 99999999999999999999; do
    fails 2 "--capacity $value is not valid; accepted: a size above 0" three.csv --capacity=$value
    fails 2 "--alignment $value is not valid; accepted: a size, 1 to 1GiB" three.csv --alignment=$value
done
fails 2 '--alignment 2GiB is not valid' three.csv --alignment 2GiB
for value in x -1 86401 1s; do
    fails 2 "--deadline $value is not valid; accepted: seconds, 0 to 86400" three.csv --deadline=$value
done
for value in 0 65 x; do
    fails 2 "--threads $value is not valid; accepted: an integer, 1 to 64" three.csv --threads=$value
done
fails 2 '--seed x is not valid; accepted: an integer' three.csv --seed x
fails 2 '--nodes 0 is not valid; accepted: an integer from 1' three.csv --nodes 0
for option in --batch --seq-len; do
    fails 2 "$option 0 is not valid; accepted: an integer, 1 to 1000000000" three.csv $option 0
done
for option in --weights --inputs --outputs; do
    fails 2 "$option no is not valid; accepted: keep, use, leave" three.csv $option no
done
for value in N N=0 N=x =3 "N=1,"; do
    fails 2 "--dim $value is not valid; accepted: name=N, N from 1" three.csv --dim=$value
done
for flag in --json --strict --no-in-place; do
    fails 2 "$flag takes no value" three.csv $flag=1
done
fails 1 'missing.csv: No such file or directory' missing.csv
fails 1 '.: not a regular file' .
fails 1 'no/such/folder.csv: No such file or directory' three.csv --output no/such/folder.csv
fails 1 'three.csv: is the input file' three.csv --output three.csv
fails 1 'three.csv: is the input file' three.csv --svg ./three.csv
is "the problem is whole" "$(wc -l < three.csv)" 4
fails 1 '/dev/full: No space left on device' three.csv --output /dev/full
ln -s three.csv link.csv
fails 1 'link.csv: is a symbolic link, not followed' three.csv --output link.csv
for name in both ./both both2; do
    rm -f both both2
    touch both
    ln both both2
    fails 1 "$name: was already written by --output" three.csv --output both --svg $name
    is "the plan is whole in $name" "$(head -1 both)" "id,lower,upper,size,offset"
done
ok "nothing is nobody's file" "$TOOL" plan three.csv --output /dev/null --svg /dev/null
fails 2 'only one of --json, --output - and --svg - can write' three.csv --output - --svg -
fails 2 'only one of --json, --output - and --svg - can write' three.csv --output=- --json
is "--output -: the plan alone, on standard output" "$("$TOOL" plan three.csv --output - | cut -d, -f1)" $'id\na\nb\nc'
# shellcheck disable=SC2016 # for the inner shell
ok "--svg -: the picture alone" sh -c '"$0" plan three.csv --svg - | python3 -c "import sys, xml.dom.minidom as m; m.parse(sys.stdin)"' "$TOOL"
ok "no file of that name is made" test ! -e ./-
# Options without meaning for a file are reported, not ignored.
printf 'op,id,bytes,stream,time_us\na,1,4096,0,0\nf,1,4096,0,1\n' > small.csv
for option in "--dim N=2" "--batch 2" "--seq-len 2" "--weights use" "--inputs use" "--outputs leave" --no-in-place --strict; do
    # shellcheck disable=SC2086 # an option and its value
    fails 2 "${option% *} is for ONNX graphs; three.csv is a placement problem" three.csv $option
    # shellcheck disable=SC2086
    fails 2 "${option% *} is for ONNX graphs; small.csv is a recorded run" small.csv $option
done
fails 2 '--alignment is not for traces: the places of a recorded run are multiples of 512' small.csv --alignment 4096
"$TOOL" plan small.csv --output small.plan > out
fails 1 'small.plan: is a plan already, for GPUCACHE_PLAN and gpucache replay --plan' small.plan
"$TOOL" plan three.csv > /dev/full 2> err
is "a full standard output is a failure" $? 1
: > empty
fails 1 'the file is empty; accepted: an ONNX model, a placement problem' empty
printf 'id,lower,upper\n' > bad.csv
fails 1 'bad.csv: line 1: the header lacks size' bad.csv
printf 'id,lower,upper,size\na,2,2,5\n' > bad.csv
fails 1 'bad.csv: line 2: lower 2, upper 2; accepted: lower below upper' bad.csv
printf 'id,lower,upper,size,offset\na,0,2,5,0\nb,1,2,5,3\n' > bad.csv
fails 1 'bad.csv: buffer a and b: overlap' bad.csv
printf 'id,lower,upper,size,alignment,offset\na,0,2,5,8,4\n' > bad.csv
fails 1 'bad.csv: buffer a: its offset is no multiple of its alignment' bad.csv
printf 'id,lower,upper,size\na,0,2,18446744073709551615\nb,0,2,1\n' > bad.csv
fails 1 'a size exceeds 64 bits' bad.csv

# ---- a problem ----
"$TOOL" plan three.csv --json --output out.csv > out.json
is "a problem is planned" $? 0
is "json: the contract's keys" "$(json out.json '[k for k in "buffers lower_bound_bytes peak_bytes total_bytes ratio optimal seconds coverage".split() if k not in r]')" "[]"
is "json: figures" "$(json out.json '[r["buffers"], r["lower_bound_bytes"], r["peak_bytes"], r["total_bytes"], r["ratio"], r["optimal"], r["coverage"]]')" \
    "[3, 150, 150, 250, 1.0, true, 1.0]"
ok "the plan is valid" python3 "$check" out.json three.csv
is "csv: the offset is added" "$(head -1 out.csv)" "id,lower,upper,size,offset"
is "csv: as the JSON" "$(tail -n +2 out.csv | cut -d, -f1,5)" "$(json out.json '"\n".join(p["id"] + "," + str(p["offset"]) for p in r["placements"])')"
"$TOOL" plan out.csv --json > again.json
is "csv: read back, offsets are fixed" "$(json again.json '[p["offset"] for p in r["placements"]]')" "$(json out.json '[p["offset"] for p in r["placements"]]')"
"$TOOL" plan three.csv --output out2.json > out
is "output: JSON by its ending" "$(json out2.json 'r["peak_bytes"]')" 150
like "text: the peak" "$(cat out)" '^peak +150 B +150$'
like "text: the ratio" "$(cat out)" '^peak / bound +1\.0000   optimal$'
like "text: the largest" "$(cat out)" '^ +100 B +[0-9]+ +0 +2  a$'
"$TOOL" plan three.csv --capacity 150 > out
is "capacity: it fits" $? 0
like "capacity: reported" "$(cat out)" '^capacity +150 B +150   it fits$'
"$TOOL" plan three.csv --capacity 149 --json > out.json 2> err
is "capacity: it does not fit" $? 3
is "capacity: the best plan is there" "$(json out.json '[r["fits"], r["capacity_bytes"], r["peak_bytes"]]')" "[false, 149, 150]"
"$TOOL" plan three.csv --alignment 64 --json > out.json
is "alignment: a multiple" $? 0
ok "alignment: valid" python3 "$check" out.json three.csv --alignment 64
printf 'id,lower,upper,size\n' > none.csv
"$TOOL" plan none.csv --json --svg none.svg > out.json
is "no buffer at all" "$(json out.json '[r["buffers"], r["peak_bytes"], r["ratio"], r["optimal"]]')" "[0, 0, 1.0, true]"
"$TOOL" plan --help > out
is "help" $? 0
is "help: 80 columns" "$(awk 'length > 80' out)" ""

# ---- a terminal ----
python3 - "$TOOL" "$ROOT/../shared/data/dsa/A.1048576.csv" << 'END' > terminal
import os, pty, subprocess, sys
if not os.path.exists(sys.argv[2]):
    sys.exit("no data")
ours, theirs = pty.openpty()
run = subprocess.Popen([sys.argv[1], "plan", sys.argv[2], "--deadline", "0.5", "--nodes", "100000000", "--alignment", "7"],
                       stdout=subprocess.DEVNULL, stderr=theirs)
os.close(theirs)
text = b""
while True:
    try:
        piece = os.read(ours, 4096)
    except OSError:
        break
    if not piece:
        break
    text += piece
run.wait()
sys.stdout.buffer.write(text.replace(b"\r\x1b[K", b"<wipe>"))
END
if [ "$(cat terminal)" = "" ]; then
    skip "a line on the terminal" "nothing took long enough, or ../shared/data is not there"
else
    like "terminal: a line while it searches" "$(cat terminal)" '^<wipe>[0-9.]+ s: lower bound 1\.0 MiB, best peak [0-9.]+ MiB, [0-9]+ steps of search'
    like "terminal: wiped at the end" "$(cat terminal)" '<wipe>$'
fi

# ---- the picture ----
python3 - << 'END'
import random
random.seed(7)
with open("many.csv", "w") as file:
    file.write("id,lower,upper,size\n")
    for i in range(20000):
        begin = random.randrange(100000)
        file.write(f"\"<{i}>&é,{begin},{begin + random.randrange(1, 3000)},{random.randrange(1, 1 << random.randrange(1, 24))}\n".replace('"', "'"))
END
timeout 60 "$TOOL" plan many.csv --deadline 1 --svg many.svg --json > out.json
is "20,000 buffers: planned" $? 0
ok "20,000 buffers: valid" python3 "$check" out.json many.csv
cat > picture.py << 'END'
import re, sys, xml.etree.ElementTree as tree
space = "{http://www.w3.org/2000/svg}"
root = tree.parse(sys.argv[1]).getroot()
assert root.get("role") == "img" and root.get("aria-labelledby") == "t d"
assert [root.find(space + name).get("id") for name in ("title", "desc")] == ["t", "d"]
assert sys.argv[2] in root.find(space + "title").text
text = " ".join("".join(item.itertext()) for item in root.iter(space + "text"))
drawn = int(re.search(r"(\d+) buffers? (?:is|are) drawn alone", text).group(1))
small = re.search(r"(\d+) (?:is|are) too small", text)
assert drawn + (int(small.group(1)) if small else 0) == int(sys.argv[3]), text
titles = [item.find(space + "title") for item in root.iter(space + "rect")]
assert len([item for item in titles if item is not None]) == drawn
for word in ("address", "live bytes", "lower bound", "the largest"):
    assert word in text, word
for item in root.iter(space + "rect"):
    assert float(item.get("x", 0)) + float(item.get("width")) <= 1400.2 and float(item.get("y", 0)) + float(item.get("height")) <= 820.2
END
ok "picture: well-formed, titled, all buffers accounted for" python3 picture.py many.svg many.csv 20000
ok "picture: not large" test "$(wc -c < many.svg)" -lt 2000000
ok "picture: of no buffer" python3 -c 'import xml.etree.ElementTree as tree; tree.parse("none.svg")'

# ---- the problems ----
data=$ROOT/../shared/data/dsa
if [ -f "$data/A.1048576.csv" ]; then
    for file in "$data"/*.csv; do
        timeout 60 "$TOOL" plan "$file" --deadline 0.3 --json > out.json
        is "$(basename "$file"): planned" $? 0
        ok "$(basename "$file"): valid" python3 "$check" out.json "$file"
    done
    for threads in 1 2; do
        timeout 60 "$TOOL" plan "$data/B.1048576.csv" --capacity 1MiB --threads $threads --json > out.json
        is "threads $threads: it fits" $? 0
        ok "threads $threads: valid" python3 "$check" out.json "$data/B.1048576.csv"
    done
else
    skip "problems" "../shared/data/dsa is not there"
fi
done_testing
