# fish completion of gshm. The candidates come from gshm itself; fish quotes them. Without a gshmd that answers within half a
# second there are no names. Names with a tab are left out: fish takes what follows it for a description.
function __gshm_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    # Its quotes may still be open.
    set -l plain (string unescape -- $current | string collect)
    or set plain (string unescape -- $current\' | string collect)
    or set plain (string unescape -- $current\" | string collect)
    or set plain $current
    set -l answer (gshm --complete words $before[2..] "$plain" </dev/null 2>/dev/null | string split0)
    switch "$answer[1]"
        case files
            __fish_complete_path "$plain"
        case folders
            __fish_complete_directories "$plain" ''
    end
    set -l i 2
    while test $i -lt (count $answer)
        set -l text $answer[$i]
        set -l description $answer[(math $i + 1)]
        if not string match -q -- "*"\t"*" $text
            if test -n "$description"
                printf '%s\t%s\0' $text $description
            else
                printf '%s\0' $text
            end
        end
        set i (math $i + 2)
    end
end
complete -c gshm -f -a '(__gshm_complete | string split0)'
