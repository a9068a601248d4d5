#!/bin/bash
# make install puts things where PREFIX and DESTDIR say, what is installed works from there, and make uninstall
# leaves nothing behind.
. "$(dirname "$0")/../lib.sh"

out=build
[ "$BUILD_DIR" = "$ROOT/build" ] || out=build/$(basename "$BUILD_DIR")
make_quietly() { make -C "$ROOT" -s --no-print-directory OUT="$out" DESTDIR="$TMP/root" PREFIX=/opt/x "$@"; }
ok "make install" make_quietly install
is "what is there" "$(cd "$TMP/root" && find . -type f | sort | grep -v 'gpucache\.[1h]$')" "./opt/x/bin/gpucache
./opt/x/lib/libgpucache.so"
ok "nothing simulated is installed" bash -c "! find '$TMP/root' | grep -q simcuda"
# shellcheck disable=SC2016 # the inner shell expands it
is "the installed tool runs a program under the installed library" \
    "$("$TMP/root/opt/x/bin/gpucache" run -- bash -c 'echo "$LD_PRELOAD"' 2>&1)" "$TMP/root/opt/x/lib/libgpucache.so"
ok "make uninstall" make_quietly uninstall
is "what is left" "$(find "$TMP/root" -type f)" ""
done_testing
