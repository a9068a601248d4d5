#!/bin/bash
# The layers: shim → core ← tools, and core knows no CUDA. Includes point downward.
set -u
cd "$(dirname "$0")/.." || exit 1
status=0
# forbid FOLDER REGEX WHY [FILE]: no source line in the folder, comments and that one file apart, matches.
forbid() {
    local folder=$1 regex=$2 why=$3 except=${4:-} file found
    [ -d "$folder" ] || return 0
    while read -r file; do
        [ "$file" != "$except" ] || continue
        # Comments are blanked, lines kept; strings stay, so that #include lines do.
        found=$(perl -0pe 's{/\*.*?\*/}{my $c = $&; $c =~ s/[^\n]//g; $c}gse; s{//[^\n]*}{}g' "$file" |
            grep -nE "$regex" | sed "s,^,$file:,")
        if [ -n "$found" ]; then
            printf '%s\n%s\n' "$why" "$found"
            status=1
        fi
    done < <(find "$folder" -name '*.[chS]' -o -name '*.def' | sort)
}

forbid core '#[[:space:]]*include[[:space:]]*[<"](cuda|nvml|cu[A-Z])' 'core includes no CUDA header:'
forbid core '(^|[^A-Za-z0-9_".])(cu|cuda|nvml)[A-Z][A-Za-z0-9]*(_v[0-9]+)?[[:space:]]*\(' 'core calls no CUDA function:'
forbid core '#[[:space:]]*include[[:space:]]*"(shim|tools|tests)/' 'core includes only core:'
forbid shim '#[[:space:]]*include[[:space:]]*"(tools|tests)/' 'the shim includes only core and shim:'
forbid tools '#[[:space:]]*include[[:space:]]*"(shim|tests)/' 'tools include only core and tools:'
forbid tools '#[[:space:]]*include[[:space:]]*[<"](cuda|nvml)' 'tools include no CUDA header:'
forbid tests/simcuda '#[[:space:]]*include[[:space:]]*"(core|shim|tools)/' 'the simulated device shares nothing with the library:'
# Host programs are not ours to end. The one abort is GC_ASSERT's, which is in check builds only.
for folder in core shim; do
    forbid $folder '(^|[^A-Za-z0-9_.>])(exit|abort|quick_exit|assert|__assert_fail)[[:space:]]*\(' \
        "$folder never ends the host program:" core/check.c
done
# A folder inside core talks to its siblings through core's own headers.
for folder in core/*/; do
    name=$(basename "$folder")
    forbid "core/$name" "#[[:space:]]*include[[:space:]]*\"core/(([^/\"]*)/)" 'siblings inside core talk through core:' |
        grep -v "\"core/$name/" | grep -q '#' && { echo "core/$name includes a sibling folder"; status=1; }
done
exit $status
