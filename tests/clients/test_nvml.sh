#!/bin/bash
# Clients of NVML from PyPI, unmodified, on the simulated device: nvidia-ml-py (pynvml), and what is built on it, gpustat and
# nvitop. Without the library and with it, with a limit and without. In a virtual environment of their own, kept.
# timeout: 400
. "$(dirname "$0")/../lib.sh"
packages="nvidia-ml-py==13.580.82 gpustat==1.1.1 nvitop==1.7.2"
venv=$ROOT/build/venv-nvml
export SIMCUDA_DEVICES=2 SIMCUDA_MEMORY=4GiB GPUCACHE_REPORT=none
MIB=1048576

# The environment is made aside and moved into place whole, so that an interrupted one is not taken for ready.
if [ ! -e "$venv/$packages" ]; then
    rm -rf "$venv"
    # shellcheck disable=SC2086 # a list of words
    if ! python3 -m venv "$venv" > "$TMP/log" 2>&1 ||
        ! timeout 240 "$venv/bin/pip" install -q --disable-pip-version-check --no-input $packages > "$TMP/log" 2>&1 < /dev/null; then
        skip "clients of NVML" "could not be fetched: $(tail -n 1 "$TMP/log")"
        done_testing
    fi
    touch "$venv/$packages"
fi
agree='all(x["total"] == [x["driver"]["total"]] * 2 and x["driver"]["device_total"] == x["driver"]["total"]
    and x["free"] == [x["driver"]["free"]] * 2 for moment in r.values() for x in moment)'

# ---- pynvml and the driver in one process ----

simulated "$venv/bin/python" "$ROOT/tests/clients/nvml.py" 300 > "$TMP/plain.json" 2> "$TMP/errors"
is "pynvml runs on the simulated device" "$(cat "$TMP/errors")" ""
is "it sees the driver's figures" "$(json "$TMP/plain.json" "$agree")" true
uuids=$(json "$TMP/plain.json" '" ".join(x["uuid"] for x in r["start"])')
read -r first second <<< "$uuids"
for mode in off track cache; do
    GPUCACHE_MODE=$mode preloaded "$venv/bin/python" "$ROOT/tests/clients/nvml.py" 300 > "$TMP/with.json" 2> "$TMP/errors"
    is "$mode, no limit: the same" "$(cat "$TMP/errors" "$TMP/with.json")" "$(cat "$TMP/plain.json")"
done
for mode in track cache; do
    GPUCACHE_MODE=$mode GPUCACHE_LIMIT="$first=1GiB,$second=3GiB" SIMCUDA_NVML_ORDER=reverse \
        preloaded "$venv/bin/python" "$ROOT/tests/clients/nvml.py" 300 > "$TMP/with.json" 2> "$TMP/errors"
    is "$mode, limits: nothing on stderr" "$(cat "$TMP/errors")" ""
    is "$mode, limits: NVML and the driver agree" "$(json "$TMP/with.json" "$agree")" true
    is "$mode, limits: each device its own, in NVML's other order" \
        "$(json "$TMP/with.json" '[(x["uuid"][-1], x["total"][0] >> 20) for x in r["held"]]')" '[["1", 3072], ["0", 1024]]'
    is "$mode, limits: what is held is used" \
        "$(json "$TMP/with.json" '(r["held"][1]["used"][1] - r["start"][1]["used"][1]) >> 20')" 300
    is "$mode, limits: and free again" "$(json "$TMP/with.json" 'r["freed"][1]["free"] == r["start"][1]["free"]')" true
done
GPUCACHE_LIMIT=1GiB preloaded "$venv/bin/python" "$ROOT/tests/clients/nvml.py" > "$TMP/with.json" 2> "$TMP/errors"
is "without CUDA: the limit, nothing used" "$(json "$TMP/with.json" '[(x["total"], x["used"]) for x in r["start"]]')" \
    "[[[$((1024 * MIB)), $((1024 * MIB))], [0, 0]], [[$((1024 * MIB)), $((1024 * MIB))], [0, 0]]]"
is "without CUDA: nothing on stderr" "$(cat "$TMP/errors")" ""

# ---- monitors, with a process that holds memory ----

export SIMCUDA_SHARED=clients-nvml-$$
env LD_LIBRARY_PATH="$SIM_DIR" LD_PRELOAD="$LIB" "$BUILD_DIR/tests/preload/nvml_dlopen" hold 500 > "$TMP/holder" 2>&1 &
holder=$!
for ((i = 0; i < 2000; i++)); do grep -qs holding "$TMP/holder" && break; sleep 0.05; done
simulated "$venv/bin/gpustat" --json > "$TMP/plain.json" 2> "$TMP/errors"
is "gpustat: the devices and who uses them" \
    "$(json "$TMP/plain.json" '[(x["uuid"], x["memory.total"], [p["pid"] for p in x["processes"]]) for x in r["gpus"]]')" \
    "[[\"$first\", 4096, [$holder]], [\"$second\", 4096, []]]"
GPUCACHE_LIMIT="$first=3GiB,$second=1GiB" preloaded "$venv/bin/gpustat" --json > "$TMP/with.json" 2> "$TMP/errors"
is "gpustat, limits: each device its own" "$(json "$TMP/with.json" '[x["memory.total"] for x in r["gpus"]]')" '[3072, 1024]'
is "gpustat, limits: nothing else differs" \
    "$(json "$TMP/with.json" '[{k: v for k, v in x.items() if not k.startswith("memory.")} for x in r["gpus"]]')" \
    "$(json "$TMP/plain.json" '[{k: v for k, v in x.items() if not k.startswith("memory.")} for x in r["gpus"]]')"
is "gpustat, limits: nothing on stderr" "$(cat "$TMP/errors")" ""
like "nvitop: both devices" "$(simulated "$venv/bin/nvitop" -1 2>&1)" '/ 4096MiB'
out=$(GPUCACHE_LIMIT=1GiB preloaded "$venv/bin/nvitop" -1 2>&1)
is "nvitop, limit: both devices have it" "$(grep -c '/ 1024MiB' <<< "$out")" 2
like "nvitop, limit: the process is still seen" "$out" "  0 +$holder "
kill $holder
wait $holder 2> /dev/null
rm -f "/dev/shm/simcuda-$(id -u)-$SIMCUDA_SHARED"
done_testing
