_rlaunch() {
    local cur=${COMP_WORDS[COMP_CWORD]} table=job option= word i=1
    COMPREPLY=()
    if ((COMP_CWORD > 1)); then
        case ${COMP_WORDS[1]} in
        @JOB@) i=2 ;;
        @OWN@) table=${COMP_WORDS[1]} i=2 ;;
        esac
    fi
    for (( ; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == '=' ]]; then
            continue
        elif [[ $option ]]; then
            option=
        elif [[ $word == -* ]]; then
            [[ -z ${_rlaunch_values[$table$word]-} ]] || option=$word
        elif [[ $table == job ]]; then
            # The program has begun: its words are its own.
            ! declare -F _command_offset >/dev/null || _command_offset "$i"
            return
        fi
    done
    [[ $cur != '=' ]] || cur=
    if [[ $option ]]; then
        eval "mapfile -t COMPREPLY < <(compgen ${_rlaunch_values[$table$option]} -- \"\$cur\")"
    elif [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "${_rlaunch_options[$table]}" -- "$cur")
    elif [[ $table == job ]]; then
        local commands=
        ((COMP_CWORD > 1)) || commands='@ALL@'
        mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$cur"; compgen -c -- "$cur")
    else
        mapfile -t COMPREPLY < <(compgen -W "${_rlaunch_words[$table]-}" -- "$cur")
    fi
}
complete -o default -o bashdefault -F _rlaunch rlaunch
