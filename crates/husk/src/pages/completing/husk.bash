
# Behind a command that takes an image stands its name, then perhaps a process or a path of it.
_husk_named() {
    local word="${COMP_WORDS[COMP_CWORD]}" said=() at one own="" glued=""
    for ((at = 1; at < COMP_CWORD; at++)); do
        one="${COMP_WORDS[at]}"
        case "$one" in
            VALUED)
                ((at++))
                [[ $at -lt $COMP_CWORD ]] || own="$one"
                continue ;;
            -*) continue ;;
        esac
        # NAME:PATH comes in pieces, where a colon breaks words.
        if [[ "$one" == : && ${#said[@]} -gt 0 ]]; then
            said[-1]+=: glued=yes
        elif [[ -n "$glued" ]]; then
            said[-1]+="$one" glued=""
        else
            said+=("$one")
        fi
    done
    if [[ "$word" == : || -n "$glued" ]] && [[ ${#said[@]} -gt 1 ]]; then
        glued="${said[-1]}"
        [[ "$word" != : ]] || glued+=:
        word="$glued${word#:}"
        unset 'said[-1]'
    fi
    case "${said[0]-} ${#said[@]} $own" in
        "trace "*" -p" | "trace "*" --pid") _husk_numbers; return 0 ;;
        *-*) _husk "$@"; return ;;
    esac
    case "$word" in -*) _husk "$@"; return ;; esac
    case "${said[0]-} ${#said[@]}" in
        "cp 1" | "cp 2") ! _husk_paths || return 0 ;;
        "mount 1") if [[ "$word" == *:* ]] && _husk_paths; then return 0; fi ;;
        "kill 2" | "explain 2") _husk_numbers; return 0 ;;
        "explain 1") if [[ "$word" == [0-9]* ]]; then _husk_numbers; return 0; fi ;;
    esac
    case "${said[0]-}" in
        VERBS)
            if [[ ${#said[@]} -eq 1 ]]; then
                COMPREPLY=( $(compgen -W "$(ASK)" -- "$word") )
                return 0
            fi ;;
    esac
    _husk "$@"
}
# Processes of the image that was named.
_husk_numbers() {
    COMPREPLY=( $(compgen -W "$(husk offer numbers -- "${said[@]}" 2> /dev/null | cut -f 1)" -- "$word") )
}
# NAME: and NAME:PATH, and with a name alone what the host has. False: nothing.
_husk_paths() {
    local typed="${word//\\/}" line found=()
    mapfile -t found < <(husk offer paths -- "$typed" 2> /dev/null)
    [[ ${#found[@]} -gt 0 || "$typed" == *:* ]] || return 1
    [[ "$typed" == *:* ]] || mapfile -t -O ${#found[@]} found < <(compgen -f -- "$typed")
    COMPREPLY=()
    for line in "${found[@]}"; do
        [[ "$typed" == *:* || ! -d "$line" ]] || line+=/
        # What stands there already is not typed again.
        printf -v line %q "${line#"$glued"}"
        [[ "$line" == *[/:] ]] || line+=" "
        COMPREPLY+=("$line")
    done
    compopt -o nospace 2> /dev/null
    return 0
}
complete -F _husk_named -o bashdefault -o default husk
