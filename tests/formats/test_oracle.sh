#!/bin/bash
# Models of every type, written and read by the formats' own Python packages, against what the library makes of them. In a virtual
# environment of their own, kept.
# timeout: 400
. "$(dirname "$0")/../lib.sh"
packages="numpy==2.2.6 safetensors==0.8.0 gguf==0.19.0 onnx==1.23.2"
venv=$ROOT/build/venv-formats
# The environment is made aside and moved into place whole, so that an interrupted one is not taken for ready.
if [ ! -e "$venv/$packages" ]; then
    rm -rf "$venv"
    # shellcheck disable=SC2086 # a list of words
    if ! python3 -m venv "$venv" > "$TMP/log" 2>&1 ||
        ! timeout 240 "$venv/bin/pip" install -q --disable-pip-version-check --no-input $packages > "$TMP/log" 2>&1 < /dev/null; then
        skip "models against the formats' own packages" "they could not be had: $(tail -n 1 "$TMP/log")"
        done_testing
    fi
    touch "$venv/$packages"
fi
exec "$venv/bin/python" "$ROOT/tests/formats/oracle.py"
