#!/bin/bash
# What gpucache exports, opened by readers that are not ours: Python's unpickler, JSON and CSV readers, Prometheus' parsers.
# timeout: 300
. "$(dirname "$0")/../lib.sh"
if [ ! -e "$SIM_DIR/libcuda.so.1" ]; then
    skip "exports of a run on the simulated device" "$SIM_DIR/libcuda.so.1 is not built"
    done_testing
fi
python=python3
package="prometheus_client==0.26.0"
venv=$ROOT/build/venv-exports
# The environment is made aside and moved into place whole, so that an interrupted one is not taken for ready.
if [ -e "$venv/$package" ] ||
    { rm -rf "$venv" && python3 -m venv "$venv" > "$TMP/log" 2>&1 &&
        timeout 120 "$venv/bin/pip" install -q --disable-pip-version-check --no-input "$package" > "$TMP/log" 2>&1 < /dev/null &&
        touch "$venv/$package"; }; then
    python=$venv/bin/python
fi
cd "$TMP" || exit 1
mkdir run
client=$BUILD_DIR/tests/formats/traced_client
for format in prom json; do # the trace is that of the last
    env LD_LIBRARY_PATH="$SIM_DIR" SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=4GiB "$TOOL" run --limit 0=160MiB --trace run/trace \
        --report run/report.$format -- "$client" 4000 || exit 1
done
env LD_LIBRARY_PATH="$SIM_DIR" SIMCUDA_MEMORY=2GiB "$TOOL" run --report run/tenants.json -- "$BUILD_DIR/tests/preload/tenants" limits || exit 1
env LD_LIBRARY_PATH="$SIM_DIR" SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=2GiB "$TOOL" run --trace run/ended --report run/ended.json \
    -- "$BUILD_DIR/tests/preload/tenants" devices || exit 1
exec "$python" "$ROOT/tests/formats/exports.py" run
