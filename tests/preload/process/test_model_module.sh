#!/bin/bash
# libgpucache-model.so, which reads models: opened only where GPUCACHE_MODEL is set, found beside the library's own file or in gpucache/
# there and nowhere else; a missing one and one of another build close the gate as an unreadable model does. The code that reads models is in it
# and not in the preloaded library.
# timeout: 400
. "$(dirname "$0")/../../lib.sh"
cd "$TMP" || exit 1
PROGRAM=$BUILD_DIR/tests/demo/train_driver
LATE=$BUILD_DIR/tests/preload/late_start
MODULE=$BUILD_DIR/libgpucache-model.so
echo '{"tensors": [{"name": "w", "dtype": "F16", "shape": [1024, 1024]}]}' > model.json

# gated LIBRARY SETTING…: the program under that library, with the model; its status. err, run.json and opened stay.
gated() {
    local library=$1
    shift
    rm -f run.json
    env GPUCACHE_REPORT="$TMP/run.json" GPUCACHE_MODEL="$TMP/model.json" LD_LIBRARY_PATH="${PATHS-}$SIM_DIR" LD_PRELOAD="$library" "$@" "$PROGRAM" > out 2> err
    echo $?
}
gate() { json run.json 'r["gate"]'; }
# laid FOLDER [gpucache/]: the library in the folder, the module in it or in that one below.
laid() {
    mkdir -p "$1/${2-}"
    cp "$LIB" "$1/libgpucache.so"
    cp "$MODULE" "$1/${2-}"
}

# ---- where it is found ----

is "in the build tree" "$(gated "$LIB"; gate)" "0
fits"
laid mount
is "in a copied folder" "$(gated "$TMP/mount/libgpucache.so"; gate)" "0
fits"
laid usr/lib/x86_64-linux-gnu gpucache/
is "in gpucache/ below" "$(gated "$TMP/usr/lib/x86_64-linux-gnu/libgpucache.so"; gate)" "0
fits"
ln -s ../usr/lib/x86_64-linux-gnu/libgpucache.so mount/linked.so
is "by a symbolic link: beside the file" "$(rm mount/libgpucache-model.so; gated "$TMP/mount/linked.so"; gate)" "0
fits"
is "by a relative path" "$(gated usr/../usr/lib/x86_64-linux-gnu/libgpucache.so; gate)" "0
fits"
mkdir decoy decoy/usr decoy/usr/lib
cp -r usr/lib/x86_64-linux-gnu decoy/usr/lib/
echo 'static void __attribute__((constructor)) run(void) { __builtin_trap(); }' | "${CC:-gcc}" -shared -fPIC -x c -o decoy/usr/lib/x86_64-linux-gnu/libgpucache-model.so -
is "by a relative path, and the program changes its folder: where it was loaded from" "$(PROGRAM=$LATE gated usr/lib/x86_64-linux-gnu/libgpucache.so CHDIR="$TMP/decoy"; gate)" "0
fits"
is "by a relative path, and the folder is another" "$(PROGRAM=$LATE gated usr/lib/x86_64-linux-gnu/libgpucache.so CHDIR=/; gate)" "0
fits"
# A relative path, from folders whose own path the dynamic linker does not know, or which is long.
is "by a relative path, from a folder that is deleted, and from a deep one" "$(python3 - "$TMP" "$BUILD_DIR" "$SIM_DIR" << 'END'
import os, shutil, subprocess, sys
top, build, simulated = sys.argv[1:]
def lay():
    for name in ("libgpucache.so", "libgpucache-model.so"):
        shutil.copy(f"{build}/{name}", name)
def status(library):
    environment = dict(os.environ, LD_PRELOAD=library, LD_LIBRARY_PATH=simulated, GPUCACHE_REPORT="none", GPUCACHE_MODEL=f"{top}/model.json", GPUCACHE_GATE="deny")
    return subprocess.run([f"{build}/tests/demo/train_driver"], env=environment, capture_output=True, check=False).returncode
os.makedirs(f"{top}/left/gone")
os.chdir(f"{top}/left")
lay()
os.chdir("gone")
os.rmdir("../gone")
deleted = status("../libgpucache.so")
deep = f"{top}/deep/" + "/".join(str(i).zfill(240) for i in range(10))
os.makedirs(deep)
os.chdir(deep)
lay()
print(deleted, status("./libgpucache.so"))
END
)" "0 0"
is "the library's file is gone: in its folder" "$(laid gone; PROGRAM=$LATE gated "$TMP/gone/libgpucache.so" UNLINK="$TMP/gone/libgpucache.so"; gate)" "0
fits"
is "by a relative path, and the library's file is gone: in its folder" "$(laid gone; PROGRAM=$LATE gated gone/libgpucache.so UNLINK="$TMP/gone/libgpucache.so"; gate)" "0
fits"
mkdir renamed
cp "$LIB" renamed/libvgpu.so
cp "$MODULE" renamed/
is "under another name" "$(gated "$TMP/renamed/libvgpu.so"; gate)" "0
fits"

# ---- opened only where a model is named ----

opened() { strace -f -e trace=open,openat,access -o calls env LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" GPUCACHE_REPORT=none "$@" > /dev/null 2>&1; grep -c libgpucache-model calls; }
if strace -o /dev/null true 2> /dev/null; then
    is "no model: neither looked for nor opened" "$(opened "$PROGRAM")" 0
    is "a model: checked, then opened once" "$(opened GPUCACHE_MODEL="$TMP/model.json" "$PROGRAM" > /dev/null; grep 'open.*libgpucache-model' calls | grep -vc NONBLOCK)" 1
    is "a model and no CUDA: not opened" "$(opened GPUCACHE_MODEL="$TMP/model.json" true)" 0
    is "a model and mode off: not opened" "$(opened GPUCACHE_MODEL="$TMP/model.json" GPUCACHE_MODE=off "$PROGRAM")" 0
else
    skip "opened only where a model is named" "no strace"
fi

# ---- missing, damaged, of another build: as a model that cannot be read ----

# refused NAME LIBRARY REGEX: warn logs it in one line, off does not, deny and exit refuse CUDA.
refused() {
    local name=$1 library=$2 regex=$3 gate
    is "$name, warn: the program runs without an estimate" "$(gated "$library"; gate)" "0
null"
    is "$name, warn: one line" "$(wc -l < err)" 1
    like "$name, warn: the line" "$(cat err)" "^gpucache: GPUCACHE_MODEL: $regex"
    is "$name, off" "$(gated "$library" GPUCACHE_GATE=off; cat err)" 0
    for gate in deny exit; do
        is "$name, $gate: CUDA is refused" "$(gated "$library" GPUCACHE_GATE=$gate)" 1
        like "$name, $gate: as an invalid value" "$(cat out err)" 'INVALID_VALUE|invalid argument|error 1|: 1$'
        like "$name, $gate: the line" "$(cat err)" "^gpucache: GPUCACHE_MODEL: $regex"
    done
}
mkdir alone
cp "$LIB" alone/
refused missing "$TMP/alone/libgpucache.so" "libgpucache-model.so, which reads models, is neither in $TMP/alone nor in $TMP/alone/gpucache: install it beside the library$"
PATHS=$BUILD_DIR: refused "on LD_LIBRARY_PATH alone" "$TMP/alone/libgpucache.so" "libgpucache-model.so, which reads models, is neither "
is "in the working folder alone" "$(cd "$BUILD_DIR" && env GPUCACHE_REPORT=none GPUCACHE_GATE=deny GPUCACHE_MODEL="$TMP/model.json" LD_LIBRARY_PATH="$SIM_DIR" \
    LD_PRELOAD="$TMP/alone/libgpucache.so" "$PROGRAM" > /dev/null 2>&1; echo $?)" 1
mkdir damaged
cp "$LIB" damaged/
echo "no shared object" > damaged/libgpucache-model.so
refused damaged "$TMP/damaged/libgpucache.so" "the module that reads models cannot be loaded: $TMP/damaged/libgpucache-model.so: "
mkdir foreign
cp "$LIB" foreign/
echo 'int other; int other_function(void) { return other; }' | "${CC:-gcc}" -shared -fPIC -x c -o foreign/libgpucache-model.so -
refused "without the symbol" "$TMP/foreign/libgpucache.so" "the module that reads models cannot be loaded: $TMP/foreign/libgpucache-model.so: undefined symbol: gpucache_model_module"
laid other
cat > other.c << 'END'
const struct { char version[32]; char sources[32]; unsigned rest[4]; void *calls[4]; } gpucache_model_module = {"0.0.1-other"};
END
"${CC:-gcc}" -shared -fPIC -o other/libgpucache-model.so other.c
refused "of another version" "$TMP/other/libgpucache.so" "$TMP/other/libgpucache-model.so is of another build \(version 0.0.1-other\) than this library \(version $(cat "$ROOT/VERSION")\): install both from one build$"

# The version and the sizes are the same, the sources are not.
laid sources
hash=$(sed -E 's/.*"(.*)"/\1/' "$BUILD_DIR/gen/sources_hash.h")
cp "$MODULE" sources/libgpucache-model.so
ok "the key has the hash of the sources" grep -qaF "$hash" sources/libgpucache-model.so
sed -i "s/$hash/${hash//[0-9]/x}/" sources/libgpucache-model.so
refused "of other sources" "$TMP/sources/libgpucache.so" "$TMP/sources/libgpucache-model.so is of another build \(version $(cat "$ROOT/VERSION")\)"
echo 'int gpucache_model_module(void) { return 1; }' | "${CC:-gcc}" -shared -fPIC -x c -o foreign/libgpucache-model.so -
refused "a function of that name" "$TMP/foreign/libgpucache.so" "$TMP/foreign/libgpucache-model.so is of another build"
laid cut
for bytes in 64 4096 20000 100000 300000; do
    head -c $bytes "$MODULE" > cut/libgpucache-model.so
    refused "cut off after $bytes bytes" "$TMP/cut/libgpucache.so" "the module that reads models cannot be loaded: $TMP/cut/libgpucache-model.so: "
done
rm cut/libgpucache-model.so
mkfifo cut/libgpucache-model.so
refused "a FIFO" "$TMP/cut/libgpucache.so" "the module that reads models cannot be loaded: $TMP/cut/libgpucache-model.so: it is not a regular file$"

# ---- gpucache doctor ----

mkdir tool
cp "$TOOL" "$LIB" tool/
diagnosis() { tool/gpucache doctor --json | python3 -c 'import json, sys; [print(f["text"]) for f in json.load(sys.stdin)["findings"]]'; }
like "doctor: missing" "$(diagnosis)" "libgpucache-model.so is neither beside $TMP/tool/libgpucache.so nor in the folder gpucache there"
is "doctor: missing, and CUDA would be refused" "$(GPUCACHE_MODEL=$TMP/model.json GPUCACHE_GATE=deny tool/gpucache doctor > out; echo $?)" 1
like "doctor: missing, and CUDA would be refused: as a failure" "$(cat out)" "FAILURE.*libgpucache-model.so is neither"
head -c 100000 "$MODULE" > tool/libgpucache-model.so
like "doctor: cut off" "$(diagnosis)" "libgpucache-model.so cannot be loaded: the file is cut off"
cp other/libgpucache-model.so tool/
like "doctor: of another version" "$(diagnosis)" 'libgpucache-model.so is of another build \(version 0.0.1-other\)'
cp "$MODULE" tool/
like "doctor: there" "$(diagnosis)" "$TMP/tool/libgpucache-model.so, version $(cat "$ROOT/VERSION"), reads models"

# ---- what is linked into which ----

# The names that objects define for others; in a shared object they may be local.
defined() { nm --defined-only "$@" 2> /dev/null | awk 'NF == 3 {print $3}' | sort -u; }
objects_of() { for source; do source=${source#"$ROOT/"}; echo "$BUILD_DIR/obj/${source%.c}.o"; done; }
mapfile -t rooms < <(objects_of "$ROOT"/core/{model,reader,onnx,formats,graph,planner,estimator}/*.c)
mapfile -t preloaded < <(objects_of "$ROOT"/core/*/*.c | grep -vE '/core/(model|reader|onnx|formats|graph|planner|estimator)/')
foreign() { comm -12 <(nm -g --defined-only "${rooms[@]}" | awk 'NF == 3 {print $3}' | sort -u) <(defined "$1"); }
is "the preloaded library: nothing of the rooms that read models" "$(foreign "$LIB")" ""
ok "the module: it has them" test "$(foreign "$MODULE" | wc -l)" -gt 200
own=$(nm -g --defined-only "${preloaded[@]}" | awk 'NF == 3 {print $3}' | sort -u)
like "the module: copies of the ground floor" "$(comm -12 <(echo "$own") <(defined "$MODULE"))" '^gc_region_alloc$'
is "the module: nothing of devices, pools or the ledger" "$(comm -12 <(echo "$own") <(defined "$MODULE") | grep -E '^gc_(core|device|context|pool|arena|ledger|tenant|trace|stacks)_')" ""
is "the module: its one export" "$(nm -D --defined-only "$MODULE" | awk '{print $3}')" gpucache_model_module
is "the module: no variable but the compiler's own" "$(size -A "$MODULE" | awk '$1 ~ /^\.(data|bss|tdata|tbss)$/ && $2 > 8')" ""
done_testing
