(( $+functions[_husk_named] )) ||
_husk_named() {
    local -a names
    names=(${(f)"$(ASK)"})
    if [[ $PREFIX == *:* ]]; then _husk_paths; else _describe -t images 'image' names; fi
}
(( $+functions[_husk_numbers] )) ||
_husk_numbers() {
    local -a lines
    lines=(${(f)"$(husk offer numbers -- $words 2> /dev/null)"})
    lines=(${lines//:/\\:})
    lines=(${lines/$'\t'/:})
    _describe -V -t processes 'process' lines
}
(( $+functions[_husk_paths] )) ||
_husk_paths() {
    local -a found
    found=(${(f)"$(husk offer paths -- "${(Q)PREFIX}" 2> /dev/null)"})
    compadd -S '' -- $found
    [[ $PREFIX == *:* ]] || _files
}
