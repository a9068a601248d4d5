# make_image FOLDER: a root of a container, from this machine's files: a shell, a few programs, the test's client, and the
# shared objects that they need. For scripts that have read lib.sh.
# shellcheck shell=bash
make_image() {
    local folder=$1 program path
    mkdir -p "$folder"/{bin,dev,etc,proc,run,sys,tmp,usr/lib,lib64}
    chmod 1777 "$folder/tmp"
    for program in sh cat cp ls sleep env id mount stat; do
        cp -L "$(type -P "$program")" "$folder/bin/$program"
    done
    cp "$BUILD_DIR/tests/preload/live_client" "$folder/bin/"
    LD_LIBRARY_PATH=$SIM_DIR ldd "$folder"/bin/* "$LIB" "$SIM_DIR/libcuda.so.1" | grep -o '/[^ ]*\.so[^ :]*' | grep -v "^$ROOT/" | sort -u |
        while read -r path; do
            [ -e "$path" ] || continue
            mkdir -p "$folder${path%/*}"
            cp -L "$path" "$folder$path"
        done
}
