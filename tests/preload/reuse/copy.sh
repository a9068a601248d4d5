# shellcheck shell=bash
# Sourced after lib.sh. Gives COPY, a copy of the library's sources and of their objects, in which a test breaks a check: only
# what a break changes is compiled.
COPY=$TMP/copy
mkdir -p "$COPY/build/obj"
cp -a "$ROOT"/{Makefile,VERSION,scripts,core,shim} "$COPY"
if [ "$BUILD_DIR" = "$ROOT/build" ]; then # by these paths the objects name their headers
    cp -a "$BUILD_DIR/gen" "$COPY/build"
    cp -a "$BUILD_DIR"/obj/{.flags,core,shim} "$COPY/build/obj"
    # What a break leaves unused is a warning, no error; the objects are the same.
    sed -i 's/-Werror//' "$COPY/build/obj/.flags"
    touch -r "$BUILD_DIR/obj/.flags" "$COPY/build/obj/.flags"
fi
for cuda in /usr/local/cuda "$ROOT/build/cuda" /usr; do
    [ -e "$cuda/include/cuda.h" ] && break
done

# build_copy: shows the end of make's output where it fails.
build_copy() {
    local output
    output=$(make -C "$COPY" -j2 CI= CUDA_HOME="$cuda" build/libgpucache.so 2>&1) || { echo "$output" | tail -20; false; }
}
