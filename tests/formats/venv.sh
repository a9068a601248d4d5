# The Python environment that has the formats' own packages, for scripts that read lib.sh before: sets `venv`, or skips the script.
# Made aside, under a lock, and marked when whole, so that neither two scripts at once nor an interrupted one spoil it.
# shellcheck shell=bash
packages="numpy==2.2.6 safetensors==0.8.0 gguf==0.19.0 onnx==1.23.2"
venv=$ROOT/build/venv-formats
make_venv() {
    [ -e "$venv/$packages" ] && return 0
    rm -rf "$venv"
    # shellcheck disable=SC2086 # a list of words
    python3 -m venv "$venv" &&
        timeout 240 "$venv/bin/pip" install -q --disable-pip-version-check --no-input $packages < /dev/null &&
        touch "$venv/$packages"
}
mkdir -p "$ROOT/build"
exec 8> "$ROOT/build/venv-formats.lock"
if ! flock -w 300 8 || ! make_venv > "$TMP/log" 2>&1; then
    skip "${0##*/}" "the formats' packages could not be fetched: $(tail -n 1 "$TMP/log")"
    done_testing
fi
exec 8>&-
