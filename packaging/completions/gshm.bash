# bash completion of gshm. The candidates come from gshm itself, in the form that readline inserts: names of objects are never
# evaluated. Without a gshmd that answers within half a second there are no names.
_gshm() {
    local answer i
    mapfile -d '' answer < <(gshm --complete bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" </dev/null 2>/dev/null)
    COMPREPLY=()
    for ((i = 1; i < ${#answer[@]}; i += 2)); do COMPREPLY+=("${answer[i]}"); done
    case ${answer[0]} in
        files) compopt -o default ;;
        folders) compopt -o dirnames ;;
    esac
    if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[/=,] ]]; then compopt -o nospace; fi
}
complete -F _gshm gshm
