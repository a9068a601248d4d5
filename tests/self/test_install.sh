#!/bin/bash
# make install puts things into PREFIX under DESTDIR, what is installed works from there, and make uninstall
# leaves nothing behind.
. "$(dirname "$0")/../lib.sh"

out=build
[ "$BUILD_DIR" = "$ROOT/build" ] || out=build/$(basename "$BUILD_DIR")
make_quietly() { make -C "$ROOT" -s --no-print-directory OUT="$out" DESTDIR="$TMP/root" PREFIX=/opt/x "$@"; }
ok "make install" make_quietly install
version=$(cat "$ROOT/VERSION")
is "what is there" "$(cd "$TMP/root/opt/x" && find . ! -type d | sort | grep -v '/man/')" "./bin/gpucache
./include/gpucache.h
./lib/gpucache/libgpucache-model.so
./lib/libgpucache.so
./lib/libgpucache.so.0
./lib/libgpucache.so.$version
./lib/pkgconfig/gpucache.pc
./share/bash-completion/completions/gpucache"
is "the manuals" "$(cd "$TMP/root/opt/x/share/man" && echo */*)" "man1/gpucache.1 man5/gpucache.conf.5 man7/libgpucache.7"
ok "nothing simulated is installed" bash -c "! find '$TMP/root' | grep -q simcuda"
# shellcheck disable=SC2016 # the inner shell expands it
is "the installed tool runs a program under the installed library" \
    "$("$TMP/root/opt/x/bin/gpucache" run -- bash -c 'echo "$LD_PRELOAD"' 2>&1)" "$TMP/root/opt/x/lib/libgpucache.so.$version"
if command -v pkg-config > /dev/null; then
    cat > "$TMP/user.c" << 'END'
#include <gpucache.h>
#include <stdio.h>
int main(void) { return printf("%s\n", gpucache_version()) < 0; }
END
    # shellcheck disable=SC2046 # a list of words
    built() {
        gcc -o "$TMP/user" "$TMP/user.c" $(PKG_CONFIG_PATH=$TMP/root/opt/x/lib/pkgconfig \
            pkg-config --define-variable=prefix="$TMP/root/opt/x" --define-variable=libdir="$TMP/root/opt/x/lib" \
            --cflags --libs gpucache)
    }
    ok "a program is built by the flags of pkg-config" built
    is "it runs with the installed library" "$(LD_LIBRARY_PATH=$TMP/root/opt/x/lib "$TMP/user" 2>&1)" "$version"
else
    skip "a program built by pkg-config" "no pkg-config"
fi
ok "make uninstall" make_quietly uninstall
is "what is left" "$(find "$TMP/root" ! -type d)" ""
for place in "PREFIX=/opt/a b" PREFIX=opt/x 'DESTDIR=/tmp/a;b' DESTDIR=relative 'PREFIX=/a&b' LIBDIR=lib; do
    text=$(make -C "$ROOT" -s --no-print-directory uninstall DESTDIR="$TMP/root" PREFIX=/opt/x "$place" 2>&1)
    like "$place is refused" "$text" "${place%%=*}=.*is accepted"
done
# A tree where nothing could be preloaded from.
mkdir "$TMP/a b"
cp -r "$ROOT/Makefile" "$ROOT/VERSION" "$ROOT/scripts" "$TMP/a b/"
like "a folder with a blank is refused" "$(make -C "$TMP/a b" -n all 2>&1)" 'a b: LD_PRELOAD cannot name a path'
done_testing
