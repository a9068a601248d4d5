#!/bin/bash
# The manuals are sound and name what there is: every command, every option of a command, every variable. The shell's
# completion offers the same.
. "$(dirname "$0")/../lib.sh"

manual() { { MANWIDTH=100 man --warnings -E UTF-8 -l -Tutf8 -Z "$1" > /dev/null; } 2>&1; }
if command -v man > /dev/null; then
    for page in gpucache.1 libgpucache.7 gpucache.conf.5; do
        is "$page: no complaint" "$(manual "$ROOT/tools/man/$page")" ""
    done
else
    skip "manuals are sound" "no man"
fi
# shellcheck disable=SC2153 # TOOL is of lib.sh
tool=$TOOL
# Dashes are written \- and words run over macros: compared without them.
plain() { sed 's/\\-/-/g; s/\\f.//g; s/^\.[A-Z]* //' "$1"; }
pages=$(plain "$ROOT/tools/man/gpucache.1")
# Several may stand in a line of the help: "  --weights W, --inputs W".
options() { "$tool" "$1" --help | grep -E '^  --' | grep -oE '(^  |, )--[a-z-]+' | grep -oE -- '--[a-z-]+'; }
commands=$("$tool" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
missing=
for command in $commands; do
    printf '%s\n' "$pages" | grep -qw "$command" || missing+=" $command"
    for option in $(options "$command"); do
        printf '%s\n' "$pages" | grep -q -- "$option" || missing+=" $command:$option"
    done
done
is "gpucache(1) has every command and option" "$missing" ""
missing=
variables=$("$TOOL" help options | grep -oE '^GPUCACHE_[A-Z_]+')
for name in $variables; do
    plain "$ROOT/tools/man/libgpucache.7" | grep -q "$name" || missing+=" $name"
done
is "libgpucache(7) has every variable" "$missing" ""
ok "there are variables" test "$(printf '%s\n' "$variables" | wc -l)" -gt 25

# offers WORD… : what the completion offers for the last word.
offers() {
    (
        # shellcheck disable=SC1091
        . "$ROOT/tools/man/gpucache.bash"
        COMP_WORDS=("$TOOL" "$@")
        COMP_CWORD=$#
        _gpucache
        printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' '
    )
}
is "completion: commands" "$(offers doc)" "doctor "
is "completion: options" "$(offers run --mod)" "--mode --model "
is "completion: values" "$(offers run --gate e)" "exit "
for command in $commands; do
    is "completion: all options of $command" "$(offers "$command" --)" \
        "$({ options "$command"; echo --help; } | sort | tr '\n' ' ')"
done
is "completion: values of the options of plan" "$(offers plan --inputs k)" "keep "
is "completion: columns" "$(offers top --sort re)" "refused reserved "
is "completion: files" "$(cd "$ROOT" && offers report READ)" "README.md "
is "completion: a program behind --" "$(offers run -- tru | tr ' ' '\n' | grep -x true | sort -u)" true
cat > "$TMP/lister" << 'END'
#!/bin/sh
printf '{\n  "processes": [\n    {\n      "pid": 47,\n      "name": "llama",\n      "group": null,\n'
printf '    {\n      "pid": 48,\n      "name": "bert",\n      "group": "team",\n'
END
chmod +x "$TMP/lister"
is "completion: processes and groups" "$(TOOL=$TMP/lister offers limit '')" "47 48 team "
is "completion: processes and tenants" "$(TOOL=$TMP/lister offers pause '')" "47 48 bert llama "
is "completion: help" "$(offers help opt)" "options "
done_testing
