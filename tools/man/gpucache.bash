# bash completion for gpucache. Commands and options are what the tool itself lists.
_gpucache()
{
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} words name
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
    limit | trim | pause | resume | pin | evict)
        if [ "$COMP_CWORD" -eq 2 ] && [[ $current != -* ]]; then
            # A process by its PID, and for limit and trim a group, for the others a tenant, by its name.
            [[ $command == @(pause|resume|pin|evict) ]] && name=name || name=group
            words=$("$tool" top --once --json 2> /dev/null | sed '1,/"processes"/d' |
                grep -oE "\"(pid|$name)\": [^,}]+" | sed 's/.*: //; s/"//g; /^null$/d')
            mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
            return
        fi
        ;;
    esac
    case $previous in
    --mode) mapfile -t COMPREPLY < <(compgen -W "cache track off" -- "$current"); return ;;
    --gate) mapfile -t COMPREPLY < <(compgen -W "off warn deny exit strict strict-exit" -- "$current"); return ;;
    --engine) mapfile -t COMPREPLY < <(compgen -W "transformers vllm llama.cpp sglang tensorrt-llm" -- "$current"); return ;;
    --policy) mapfile -t COMPREPLY < <(compgen -W "cache driver" -- "$current"); return ;;
    --backend) mapfile -t COMPREPLY < <(compgen -W "vmm driver" -- "$current"); return ;;
    --split) mapfile -t COMPREPLY < <(compgen -W "layers tensor" -- "$current"); return ;;
    --train) mapfile -t COMPREPLY < <(compgen -W "adamw adamw-foreach sgd sgd-momentum adafactor adamw-8bit" -- "$current"); return ;;
    --zero) mapfile -t COMPREPLY < <(compgen -W "0 1 2 3" -- "$current"); return ;;
    --attention) mapfile -t COMPREPLY < <(compgen -W "flash full" -- "$current"); return ;;
    --weights | --inputs | --outputs) mapfile -t COMPREPLY < <(compgen -W "keep use leave" -- "$current"); return ;;
    --sort)
        words="reserved live idle limit refused peak hits pid name user group device"
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
        return
        ;;
    esac
    if [[ $current == -* ]]; then
        words=$("$tool" "$command" --help 2> /dev/null | grep -E '^  --' | grep -oE '(^  |, )--[a-z-]+' | tr -d ' ,')
        mapfile -t COMPREPLY < <(compgen -W "$words --help" -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        compopt -o filenames 2> /dev/null
    fi
}
complete -F _gpucache gpucache
