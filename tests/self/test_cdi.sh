#!/bin/bash
# `gpucache cdi`: the specification's options, and what its hooks refuse or remove, without a container engine.
. "$(dirname "$0")/../lib.sh"
node=$TMP/node

# spec OPTIONS…: the specification's devices and their limits.
spec() {
    "$TOOL" cdi "$@" > "$TMP/spec.json" && json "$TMP/spec.json" \
        '" ".join(e["name"] + ":" + ",".join(e["containerEdits"]["env"]) for e in r["devices"])'
}
is "devices are named by the sizes" "$(spec --sizes 2GiB,1.5GiB,512m)" \
    "2GiB:GPUCACHE_GROUP_LIMIT=2GiB 1.5GiB:GPUCACHE_GROUP_LIMIT=1.5GiB 512m:GPUCACHE_GROUP_LIMIT=512m"
ok "the usual sizes are there" test "$(spec | wc -w)" -gt 20
is "the library of the tool, its module and a place" "$(json "$TMP/spec.json" \
    '" ".join(m["hostPath"] + ":" + m["containerPath"] for m in r["containerEdits"]["mounts"])')" \
    "$BUILD_DIR/libgpucache.so:/usr/lib/gpucache/libgpucache.so $BUILD_DIR/libgpucache-model.so:/usr/lib/gpucache/libgpucache-model.so tmpfs:/run/gpucache/users"
is "hooks have an environment of their own" "$(json "$TMP/spec.json" 'sorted({h["env"][0][:5] for h in r["containerEdits"]["hooks"]})')" '["PATH="]'
ok "into a file" "$TOOL" cdi --with-tool --node "$node" --output "$TMP/out.json"
is "with the tool, and the node's folder in the hooks" "$(json "$TMP/out.json" \
    '[m["containerPath"] for m in r["containerEdits"]["mounts"] if m["hostPath"].endswith("/gpucache")] + [h["args"][4] for h in r["containerEdits"]["hooks"]]')" \
    "[\"/usr/bin/gpucache\", \"$node\", \"$node\"]"
for bad in 0 50% "2 GiB" "2GiB," ",2GiB" 2GiB/x GiB -1 "$(printf '9%.0s' {1..40})" "2GiB,two"; do
    like "refused: --sizes '$bad'" "$("$TOOL" cdi --sizes "$bad" 2>&1)" "^gpucache cdi: --sizes .*accepted: sizes"
done
like "with what is accepted" "$("$TOOL" cdi --sizes 2GiB,two 2>&1)" '--sizes two is not valid; accepted: sizes without blanks'
like "no size twice" "$("$TOOL" cdi --sizes 2GiB,1GiB,2GiB 2>&1)" '2GiB stands twice'
not_ok "a relative folder is refused" "$TOOL" cdi --node run
not_ok "a library that is not there is refused" "$TOOL" cdi --library /nowhere/lib.so
not_ok "an unknown word is refused" "$TOOL" cdi make

# ---- the hooks: each bad state is a failure with a line, and nothing is made ----

# hook WORD STATE: its words, on one line; fails as the hook does.
hook() { printf '%s' "$2" | "$TOOL" cdi "$1" --node "$node" --library "$LIB" 2>&1; }
for bad in '' '{' '[]' '{}' '{"id": 1}' '{"id": ""}' '{"id": "../x"}' '{"id": "a/b"}' '{"id": "."}' '{"id": ".."}' '{"id": "a.labels"}' \
    "{\"id\": \"$(printf 'x%.0s' {1..300})\"}" '{"id": "a", "id": "b"}'; do
    not_ok "create refuses ${bad:0:40}" hook create "$bad"
    not_ok "remove refuses ${bad:0:40}" hook remove "$bad"
done
mkdir "$TMP/bundle"
state="{\"id\": \"c1\", \"bundle\": \"$TMP/bundle\"}"
not_ok "create refuses a state without a bundle" hook create '{"id": "c1"}'
not_ok "and a bundle without a configuration" hook create "$state"
is "the mode is named, before any file of an image" "$(json "$TMP/spec.json" '[e for e in r["containerEdits"]["env"] if "MODE" in e]')" '["GPUCACHE_MODE=cache"]'
limit='"LD_PRELOAD=/usr/lib/gpucache/libgpucache.so", "GPUCACHE_GROUP=container", "GPUCACHE_GROUP_LIMIT=1GiB"'
env="$limit, \"GPUCACHE_MODE=cache\""
# configured VARIABLES: what create says of a container with them.
configured() {
    printf '{"root": {"path": "/tmp"}, "process": {"env": [%s]}}' "$1" > "$TMP/bundle/config.json"
    hook create "$state"
}
like "no mode is no limit" "$(configured "$limit")" 'no limit: GPUCACHE_MODE= is not valid there; accepted: cache|track'
for bad in GPUCACHE_MODE=off GPUCACHE_MODE=bad; do
    like "nor is $bad" "$(configured "$limit, \"$bad\"")" "no limit: $bad is not valid there"
done
for bad in GPUCACHE_LEDGER=/tmp/x GPUCACHE_NODE=/tmp/x GPUCACHE_CONFIG=/x.conf CUDA_DISABLE_CONTROL=true CUDA_DISABLE_CONTROL=T CUDA_DISABLE_CONTROL=1; do
    like "$bad is refused" "$(configured "$env, \"$bad\"")" "no limit: $bad is not valid there"
done
for good in GPUCACHE_LEDGER= GPUCACHE_NODE=/run/gpucache GPUCACHE_CONFIG= CUDA_DISABLE_CONTROL=False; do
    like "$good is not" "$(configured "$env, \"$good\"")" "libgpucache.so in it: "
done
like "nor is the mode track" "$(configured "$limit, \"GPUCACHE_MODE=track\"")" "libgpucache.so in it: "
for bad in '' '[]' '{}' '{"root": {"path": ""}}' '{"root": {"path": "/nowhere"}}' '{"root": {"path": "rootfs"}, "process": {"env": [1, null]}}' \
    "{\"root\": {\"path\": \"/nowhere\"}, \"process\": {\"env\": [$env]}}" "{\"root\": {\"path\": \"/tmp\"}, \"process\": {\"env\": [$env]}}"; do
    printf '%s' "$bad" > "$TMP/bundle/config.json"
    not_ok "and the configuration ${bad:0:70}" hook create "$state"
done
ok "nothing was made" test ! -e "$node"

# ---- the removal ----

mkdir -p "$node/pods/c1/0/deep/deeper" "$TMP/outside/kept"
: > "$node/pods/c1/0/deep/ledger"
: > "$node/pods/c1.labels"
: > "$node/pods/c10.labels"
ln -s "$TMP/outside" "$node/pods/c1/0/link"
ln -s c1 "$node/pods/c2"
mkfifo "$node/pods/c1/0/fifo"
ok "a link in a scope's place is removed itself" hook remove '{"id": "c2"}'
ok "what it led to is there" test -d "$node/pods/c1/0"
ok "a scope is removed, whatever lies in it" hook remove "$state"
is "with its labels, and nothing else" "$(ls "$node/pods") $(ls "$TMP/outside")" "c10.labels kept"
ok "a scope that is gone is no failure" hook remove "$state"
(cd "$node/pods" && for ((i = 0; i < 80; i++)); do mkdir -p c3 && cd c3 || exit; done)
not_ok "one that is deeper than any ledger's is refused" hook remove '{"id": "c3"}'
done_testing
