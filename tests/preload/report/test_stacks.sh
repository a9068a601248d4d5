#!/bin/bash
# GPUCACHE_STACKS: the report shows where memory came from, in C and in Python, with the interpreter's lock held or not,
# and what it costs a program that waits in a knot of locks is a bounded time.
. "$(dirname "$0")/../../lib.sh"

run() { # run STACKS REPORT COMMAND…
    local stacks=$1 report=$2
    shift 2
    GPUCACHE_STACKS=$stacks GPUCACHE_REPORT=$report preloaded timeout 60 "$@" 2>&1
}
sees() { # sees REPORT EXPRESSION: over `device`, `leaks`, `sites` and all(words, stack)
    python3 - "$@" << 'END'
import json, sys
device = json.load(open(sys.argv[1]))["devices"][0]
leaks, sites = device["leaks"], device["call_sites"]
def has(stack, *words):
    at = -1
    for word in words:
        found = [i for i, frame in enumerate(stack) if word in frame and i > at]
        if not found:
            return False
        at = found[0]
    return True
if not eval(sys.argv[2]):
    sys.exit("\n".join(str(s["stack"][:8]) for s in (leaks + sites)[:4]))
END
}

program=$BUILD_DIR/tests/preload/stacks
ok "a program in C" run all "$TMP/all.json" "$program"
ok "the leak's way is known, innermost first" sees "$TMP/all.json" \
    'len(leaks) == 1 and has(leaks[0]["stack"], "site_one+", "through+", "main+")'
ok "no frame of the library's own" sees "$TMP/all.json" 'not any("libgpucache.so" in f for s in sites for f in s["stack"])'
ok "a site has its counts" sees "$TMP/all.json" \
    'any(s["count"] == 10 and s["bytes"] == 10 << 20 and s["current_bytes"] == 1 << 20 and s["current_count"] == 1
         and s["peak_bytes"] == 1 << 20 and has(s["stack"], "site_one+") for s in sites)'
ok "one site for all threads" sees "$TMP/all.json" \
    '[(s["count"], s["bytes"], s["current_bytes"]) for s in sites if has(s["stack"], "site_two+", "through+", "work")
      or has(s["stack"], "site_two+", "through+")] == [(4000, 4000 * 4096, 0)]'
ok "largest first" sees "$TMP/all.json" '[s["peak_bytes"] for s in sites] == sorted((s["peak_bytes"] for s in sites), reverse=True)'
if [ -e "$BUILD_DIR/tests/demo/train-shared" ]; then
    ok "a program of the runtime" run all "$TMP/runtime.json" "$BUILD_DIR/tests/demo/train-shared"
    ok "nor of the runtime below it" sees "$TMP/runtime.json" \
        'len(sites) > 0 and all("train-shared+" in s["stack"][0] for s in sites)'
else
    skip "a program of the runtime" "it was not built"
fi
ok "leaks alone" run leaks "$TMP/leaks.json" "$program"
ok "have their stacks, and there are no sites" sees "$TMP/leaks.json" 'has(leaks[0]["stack"], "site_one+") and sites == []'
ok "off" run off "$TMP/off.json" "$program"
ok "there are neither" sees "$TMP/off.json" 'leaks[0]["stack"] == [] and sites == []'
like() { if [[ "$2" == *"$3"* ]]; then ok "$1" true; else is "$1" "$2" "$3"; fi; }
like "the text has the site" "$(run all stderr "$program")" "site_one+"
like "gpucache report shows it" "$("$TOOL" report "$TMP/all.json")" "site_one+"
is "and writes the same JSON" "$("$TOOL" report "$TMP/all.json" --json | python3 -c 'import json, sys
print(json.load(sys.stdin)["devices"] == json.load(open(sys.argv[1]))["devices"])' "$TMP/all.json")" True
# The program's own names and lines, which the process could not know.
"$TOOL" report "$TMP/all.json" --symbols --json > "$TMP/named.json"
line=$(grep -n 'through(site_one' "$ROOT/tests/preload/report/progs/stacks.c" | cut -d: -f1)
ok "names and lines from the files" sees "$TMP/named.json" \
    "has(leaks[0]['stack'], 'site_one (', 'through (', 'stacks.c:$line)')"
ok "a function that is not exported" sees "$TMP/named.json" 'any(has(s["stack"], "site_two (", "work (") for s in sites)'
cd "${program%/*}" || exit 1
ok "a program by a path that begins here" run leaks "$TMP/here.json" "./${program##*/}"
cd "$ROOT" || exit 1
like "is found from elsewhere" "$("$TOOL" report "$TMP/here.json" --symbols)" "site_one ("
sed "s,$program+,/no/such/file+,g" "$TMP/all.json" > "$TMP/moved.json"
like "a file that is gone leaves the frame as it was" "$("$TOOL" report "$TMP/moved.json" --symbols)" "/no/such/file+0x"
ok "traced too" env GPUCACHE_TRACE="$TMP/trace" bash -c "$(declare -f run preloaded); SIM_DIR='$SIM_DIR' LIB='$LIB'; run all '$TMP/t.json' '$program'"
ok "on driver allocations" env GPUCACHE_BACKEND=driver bash -c "$(declare -f run preloaded); SIM_DIR='$SIM_DIR' LIB='$LIB'; run all '$TMP/d.json' '$program'"
ok "their leak's way is known" sees "$TMP/d.json" 'has(leaks[0]["stack"], "site_one+", "main+")'

# Two sites that leak: 512 allocations of one line are one entry, named by the program's own frame.
cat > "$TMP/sites.c" << 'END'
#include <stddef.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *address, size_t bytes);
static unsigned long long kept[513];
__attribute__((noinline)) int load_weights(int i) { return cuMemAlloc_v2(&kept[i], 1 << 20) + 0; }
__attribute__((noinline)) int grow_cache(int i) { return cuMemAlloc_v2(&kept[i], 64 << 20) + 0; }
int main(void)
{
    void *context;
    int code = cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
    for (int i = 0; i < 512 && code == 0; i++)
        code = load_weights(i);
    return code ? code : grow_cache(512);
}
END
gcc -g -O1 -fno-optimize-sibling-calls -rdynamic -o "$TMP/sites" "$TMP/sites.c" -L"$SIM_DIR" -l:libcuda.so.1
sites_are() { # sites_are NAME REPORT VALUE: entries of the form "count MiB frame", without offsets and folders
    is "$1" "$(python3 -c 'import json, re, sys
for group in json.load(open(sys.argv[1]))["devices"][0]["leak_groups"]:
    frame = re.sub(r"\+0x[0-9a-f]+|/[^ ]*/", "", group["frame"] or "none")
    print(group["count"], group["bytes"] >> 20, frame, end="; ")' "$2")" "$3"
}
ok "two sites" run leaks "$TMP/sites.json" "$TMP/sites"
sites_are "are two entries" "$TMP/sites.json" "512 512 load_weights (sites); 1 64 grow_cache (sites); "
text=$("$TOOL" report "$TMP/sites.json" --symbols)
like "the first line names the worse one" "$(head -2 <<< "$text" | tr -s ' \n' ' ')" \
    "== gpucache: 513 leaks of 576.0 MiB on device 0, 512 of them, 512.0 MiB, at load_weights (sites.c:5)"
like "the text has a row of each" "$(tr -s ' ' <<< "$text")" $'load_weights (sites.c:5) 512 512.0 MiB 1.0 MiB\n cuMemAlloc_v2, the largest at 0x'
like "with its count" "$(tr -s ' ' <<< "$text")" $'grow_cache (sites.c:6) 1 64.0 MiB 64.0 MiB\n cuMemAlloc_v2 at 0x'
ok "without stacks" run off "$TMP/sites-off.json" "$TMP/sites"
sites_are "an entry for each size" "$TMP/sites-off.json" "512 512 none; 1 64 none; "
cat > "$TMP/sites.py" << 'END'
import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def cache():
    return cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(2 << 20))
for _ in range(512):
    cache()
END
ok "512 of a line of Python" run leaks "$TMP/sites-python.json" python3 "$TMP/sites.py"
sites_are "are one entry, not ffi_call's" "$TMP/sites-python.json" "512 1024 cache (sites.py:6); "
ok "traced with its stacks" env GPUCACHE_TRACE="$TMP/sites.trace" bash -c "$(declare -f run preloaded); SIM_DIR='$SIM_DIR' LIB='$LIB'; run all '$TMP/t2.json' '$TMP/sites'"
"$TOOL" trace "$TMP/sites.trace" --html "$TMP/sites.html" --symbols
"$TOOL" report "$TMP/t2.json" --html "$TMP/both.html" --symbols --trace "$TMP/sites.trace"
for page in sites both; do
    is "the page's call sites by name and line: $page" "$(python3 -c 'import json, re, sys
trace = json.loads(re.search(r"id=.data.>(.*?)</script>", open(sys.argv[1]).read(), re.S).group(1))["sides"][0]["trace"]
print([re.sub("/.*/", "", trace["frames"][site["stack"][site["own"]]]) for site in trace["sites"]], [site["count"] for site in trace["devices"][0]["sites"]])' \
        "$TMP/$page.html")" "['load_weights (sites.c:5)', 'grow_cache (sites.c:6)'] [512, 1]"
done
is "--symbols alone" "$("$TOOL" trace "$TMP/sites.trace" --symbols 2>&1)" "gpucache trace: --symbols goes with --html; see gpucache trace --help"
# Several calls on one line: many addresses.
cat > "$TMP/line.c" << 'END'
#include <stddef.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *address, size_t bytes);
static unsigned long long kept;
#define TWICE(call) (call) + (call)
int main(void)
{
    void *context;
    int code = cuInit(0) + cuDevicePrimaryCtxRetain(&context, 0) + cuCtxSetCurrent(context);
    return code + TWICE(TWICE(cuMemAlloc_v2(&kept, 1 << 20)));
}
END
gcc -g -O1 -o "$TMP/line" "$TMP/line.c" -L"$SIM_DIR" -l:libcuda.so.1
ok "four calls on a line" run leaks "$TMP/line.json" "$TMP/line"
is "are four places" "$(python3 -c 'import json, sys
print(len(json.load(open(sys.argv[1]))["devices"][0]["leak_groups"]))' "$TMP/line.json")" 4
"$TOOL" report "$TMP/line.json" --symbols --json > "$TMP/named-line.json"
sites_are "and one entry once their line is known" "$TMP/named-line.json" "4 4 main (line.c:10); "

# Libraries that come and go, one at the other's addresses: each frame keeps the name of the one that it was in.
cat > "$TMP/plugin.c" << 'END'
#include <stddef.h>
int cuMemAlloc_v2(unsigned long long *address, size_t bytes);
__attribute__((noinline)) static int take(size_t bytes)
{
    static unsigned long long address;
    int result = cuMemAlloc_v2(&address, bytes);
    return result + (address == 1);
}
int plugin_leak(void) { return take(BYTES) + 0; }
END
cat > "$TMP/loads.c" << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int main(int argc, char **argv)
{
    void *context;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    for (int i = 1; i < argc; i++) {
        void *plugin = dlopen(argv[i], RTLD_NOW);
        int (*leak)(void) = plugin ? (int (*)(void))dlsym(plugin, "plugin_leak") : NULL;
        Dl_info info;
        if (leak == NULL || leak() != 0 || !dladdr(leak, &info))
            return 2;
        printf("%p\n", info.dli_fbase);
        dlclose(plugin);
    }
    return 0;
}
END
gcc -g -O1 -shared -fPIC -DBYTES=1048576 -o "$TMP/one.so" "$TMP/plugin.c"
gcc -g -O1 -shared -fPIC -DBYTES=2097152 -o "$TMP/two.so" "$TMP/plugin.c"
gcc -o "$TMP/loads" "$TMP/loads.c" -L"$SIM_DIR" -l:libcuda.so.1 -ldl
bases=$(run leaks "$TMP/gone.json" "$TMP/loads" "$TMP/one.so" "$TMP/two.so" "$TMP/one.so")
echo "# loaded at $(echo "$bases" | sort | uniq -c | tr '\n' ' ')"
of() { sees "$TMP/gone.json" "[has(l['stack'], '/$1.so+0x', '/$1.so+0x', 'loads+0x') for l in leaks if l['bytes'] == $2 << 20] == [True] * $3"; }
ok "the name of a library that is gone" of one 1 2
ok "and of another at its place" of two 2 1
"$TOOL" report "$TMP/gone.json" --symbols --json > "$TMP/gone-named.json"
ok "its functions and lines from the file" sees "$TMP/gone-named.json" \
    'len(leaks) == 3 and all(has(l["stack"], "plugin.c:6)", "plugin_leak (") for l in leaks)'

is "a program in Python" "$(run leaks "$TMP/python.json" python3 "$ROOT/tests/preload/report/stacks.py")" "done"
by_size() { sees "$TMP/python.json" "any(l['bytes'] == $1 << 20 and has(l['stack'], $2) for l in leaks)"; }
ok "frames where the lock was released" by_size 1 '"allocate (", "leak_released (", "<module> ("'
ok "frames where it was held" by_size 2 '"allocate (", "leak_held ("'
ok "frames of a thread" by_size 3 '"allocate (", "leak_in_thread (", "run ("'
ok "files and lines" by_size 1 '"stacks.py:'"$(grep -n 'return allocate(cuda, 1' "$ROOT/tests/preload/report/stacks.py" | cut -d: -f1)"')"'

deep=$TMP/a/project/of/many/folders/each/with/a/name/that/is/rather/long
mkdir -p "$deep"
cp "$ROOT/tests/preload/report/stacks.py" "$deep/layers.py"
run leaks "$TMP/deep.json" python3 "$deep/layers.py" > "$TMP/done"
text=$("$TOOL" report "$TMP/deep.json")
like "the text has Python's frames beside the innermost" "$text" $'\n       allocate (...'
like "of a long path the end" "$text" "rather/long/layers.py:"
is "every line fits" "$(wc -L <<< "$text" | awk '{ print ($1 <= 80) }')" 1

# A thread holds the interpreter's lock and waits for a mutex that the allocating thread has.
cat > "$TMP/knot.c" << 'END'
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
int cuMemAlloc_v2(unsigned long long *address, size_t bytes);
static volatile int is_locked;
int allocate_locked(unsigned long long *address)
{
    int result;
    pthread_mutex_lock(&mutex);
    is_locked = 1;
    usleep(200000);
    result = cuMemAlloc_v2(address, 1 << 20);
    pthread_mutex_unlock(&mutex);
    return result;
}
int has_it(void) { return is_locked; }
void wait_for_it(void)
{
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}
END
gcc -shared -fPIC -o "$TMP/knot.so" "$TMP/knot.c"
cat > "$TMP/knot.py" << 'END'
import ctypes, sys, threading
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
def work():
    assert cuda.cuCtxSetCurrent(context) == 0
    assert ctypes.CDLL(sys.argv[1]).allocate_locked(ctypes.byref(ctypes.c_uint64())) == 0
thread = threading.Thread(target=work)
thread.start()
while not ctypes.CDLL(sys.argv[1]).has_it():
    pass
ctypes.PyDLL(sys.argv[1]).wait_for_it()
thread.join()
print("done")
END
# Interpreters with locks of their own: their objects are not touched under the main one's.
for python in python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[3-9]*/bin/python3; do
    [ -x "$(command -v "$python")" ] || continue
    text=$(run all "$TMP/interpreters.json" "$python" "$ROOT/tests/preload/process/interpreters.py")
    status=$?
    [ "$status" = 77 ] || break
done
if [ "$status" = 77 ]; then
    skip "interpreters with locks of their own" "no Python here has them"
else
    is "interpreters with locks of their own" "$text $status" "done 0"
fi
is "a knot of locks comes undone" "$(run leaks "$TMP/knot.json" python3 "$TMP/knot.py" "$TMP/knot.so")" "done"
done_testing
