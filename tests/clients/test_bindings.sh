#!/bin/bash
# cuda-bindings' driver module from PyPI, unmodified, in a virtual environment of its own (build/venv, kept). It
# reaches the driver by dlopen, dlsym for cuGetProcAddress_v2, and that for everything else.
# timeout: 400
. "$(dirname "$0")/../lib.sh"
package=cuda-bindings
version=13.0.3
venv=$ROOT/build/venv

# The environment is made aside and moved into place whole, so that an interrupted one is not taken for ready.
if [ ! -e "$venv/$package-$version" ]; then
    rm -rf "$venv"
    if ! python3 -m venv "$venv" > "$TMP/log" 2>&1 ||
        ! timeout 240 "$venv/bin/pip" install -q --disable-pip-version-check --no-input \
            "$package==$version" cuda-pathfinder > "$TMP/log" 2>&1 < /dev/null; then
        skip "cuda-bindings" "$package $version could not be fetched: $(tail -n 1 "$TMP/log")"
        done_testing
    fi
    touch "$venv/$package-$version"
fi

without=$(simulated "$venv/bin/python" "$ROOT/tests/clients/bindings.py" 2> "$TMP/errors")
is "runs on the simulated driver" "$?" 0 || sed 's/^/# /' "$TMP/errors"
printf '%s\n' "$without" > "$TMP/without.json"
is "all threads read what they wrote" "$(json "$TMP/without.json" 'r["seen"]["plain"]')" '[]'

for mode in off track cache; do
    report=$TMP/$mode.json
    with=$(GPUCACHE_MODE=$mode GPUCACHE_REPORT=$report preloaded "$venv/bin/python" "$ROOT/tests/clients/bindings.py" 2> "$TMP/errors")
    is "mode $mode: the same results and error codes" "$with" "$without" || sed 's/^/# /' "$TMP/errors"
    is "mode $mode: nothing on stderr" "$(without_refusals < "$TMP/errors")" ""
    if [ $mode = off ]; then
        ok "mode off: no report" test ! -e "$report"
        continue
    fi
    # What the script counted itself, entry point by entry point, and nothing else of those.
    counted=$(python3 - "$report" "$TMP/without.json" << 'END'
import json, sys
report, script = (json.load(open(path)) for path in sys.argv[1:])
rows = report["devices"][0]["by_api"]
print(json.dumps({entry: rows.get(entry, {}).get("count") for entry in script["counts"]}, sort_keys=True))
END
    )
    is "mode $mode: by_api counts what the script did" "$counted" "$(json "$TMP/without.json" 'r["counts"]')"
    is "mode $mode: nothing leaks" "$(json "$report" '[l["api"] for l in d["leaks"]]')" '[]'
done
done_testing
