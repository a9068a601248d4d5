# bash completion for gpucache. Commands and options are what the tool itself lists.
_gpucache()
{
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} words
    local tool=${COMP_WORDS[0]} i
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        words=$("$tool" --help 2> /dev/null | sed -n 's/^  \([a-z]*\)  .*/\1/p')
        mapfile -t COMPREPLY < <(compgen -W "$words help --help --version" -- "$current")
        return
    fi
    # Behind "--" of run stands another program's line.
    if [ "$command" = run ]; then
        for ((i = 2; i < COMP_CWORD; i++)); do
            if [ "${COMP_WORDS[i]}" = -- ]; then
                if declare -F _command_offset > /dev/null; then
                    _command_offset $((i + 1))
                else
                    mapfile -t COMPREPLY < <(compgen -c -- "$current")
                fi
                return
            fi
        done
    fi
    case $command in
    help)
        words=$("$tool" --help 2> /dev/null | sed -n 's/^  \([a-z]*\)  .*/\1/p')
        mapfile -t COMPREPLY < <(compgen -W "$words options" -- "$current")
        return
        ;;
    limit | trim | pause | resume)
        if [ "$COMP_CWORD" -eq 2 ] && [[ $current != -* ]]; then
            words=$("$tool" top --once --json 2> /dev/null | sed -n 's/.*"pid": \([0-9]*\),.*/\1/p; s/.*"group": "\([^"]*\)".*/\1/p')
            mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
            return
        fi
        ;;
    esac
    case $previous in
    --mode) mapfile -t COMPREPLY < <(compgen -W "cache track off" -- "$current"); return ;;
    --gate) mapfile -t COMPREPLY < <(compgen -W "off warn deny exit" -- "$current"); return ;;
    --policy) mapfile -t COMPREPLY < <(compgen -W "cache driver" -- "$current"); return ;;
    esac
    if [[ $current == -* ]]; then
        words=$("$tool" "$command" --help 2> /dev/null | grep -oE '^  --[a-z-]+' | tr -d ' ')
        mapfile -t COMPREPLY < <(compgen -W "$words --help" -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        compopt -o filenames 2> /dev/null
    fi
}
complete -F _gpucache gpucache
