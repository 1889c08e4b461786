#!/usr/bin/env bash
# Runs test_client's parent and child with a daemon of their own: `make test-client` builds and calls this.
#   examples/test_client.sh [--mount DIR] [-- OPTION...]    the options go to gshmd, for example --device host:64M
#   examples/test_client.sh [--mount DIR] --clean           unmounts DIR and removes it: `make test-clean`
# DIR is ./test_mount by default; GSHM_BIN is the folder of the programs. Daemon, mount and folders are removed at the
# end, also after Ctrl-C or a failure.
set -euo pipefail

bin=${GSHM_BIN:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/bin}
mount=./test_mount
clean=
while (($# > 0)); do
    case $1 in
        --mount)
            mount=${2:?--mount needs a folder}
            shift 2
            ;;
        --clean)
            clean=1
            shift
            ;;
        --)
            shift
            break
            ;;
        *)
            echo "test_client.sh: unknown option $1" >&2
            exit 2
            ;;
    esac
done
daemon_options=("$@")

die() {
    printf 'test_client.sh: %s\n' "$*" >&2
    exit 1
}

# The table also lists the mount of a killed daemon, although its contents are inaccessible.
is_mounted() {
    local parent
    parent=$(cd "$(dirname "$mount")" && pwd -P) || return 1
    # The fifth field of mountinfo is the mount point, with white space and backslashes in octal.
    awk '{ print $5 }' /proc/self/mountinfo | while read -r line; do printf '%b\n' "${line//\\/\\0}"; done |
        grep -qxF -- "${parent%/}/$(basename "$mount")"
}

unmount() { # unmount [lazily]
    local options=()
    if [[ ${1:-} == lazily ]]; then options=(-l); fi
    fusermount3 -u ${1:+-z} "$mount" 2>/dev/null || umount "${options[@]}" "$mount" 2>/dev/null || true
    ! is_mounted
}

if [[ -n $clean ]]; then
    if is_mounted && ! unmount; then
        die "$mount cannot be unmounted; is a program still in it? (fuser -vm $mount)"
    fi
    if [[ ! -d $mount ]]; then exit 0; fi
    rmdir "$mount" || die "$mount is an ordinary folder with files in it, and stays"
    exit 0
fi

for program in gshmd test_client; do
    [[ -x $bin/$program ]] || die "$bin/$program is missing; build first: ./dev build"
done
if is_mounted; then die "something is mounted at $mount already; to undo that: make test-clean"; fi
made_folder=
if [[ ! -d $mount ]]; then
    mkdir "$mount"
    made_folder=1
elif [[ -n $(ls -A "$mount") ]]; then
    die "$mount has files in it; use another folder: examples/test_client.sh --mount DIR"
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/gshm-test-client.XXXXXX")
daemon=
outcome=

clean_up() {
    local status=$?
    trap - EXIT INT TERM HUP
    set +e
    if is_mounted; then unmount; fi
    if [[ -n $daemon ]]; then
        kill -TERM "$daemon" 2>/dev/null
        timeout 10 tail -s 0.1 --pid="$daemon" -f /dev/null || kill -KILL "$daemon" 2>/dev/null
        wait "$daemon" 2>/dev/null
    fi
    if is_mounted; then unmount lazily; fi
    if [[ -n $made_folder ]]; then rmdir "$mount"; fi
    if [[ -z $outcome && -s $work/gshmd.log ]]; then
        echo "gshmd printed:" >&2
        sed 's/^/  /' "$work/gshmd.log" >&2
    fi
    rm -rf "$work"
    if [[ -n $outcome ]]; then
        printf '\ntest-client PASSED: %s\n' "$outcome"
        exit 0
    fi
    printf '\ntest-client FAILED\n' >&2
    exit $((status ? status : 1))
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

run() {
    printf '\n$ %s\n' "$*"
    "$@"
}

printf '$ gshmd %s\n' "$mount"
: >"$work/gshmd.log"
"$bin/gshmd" "$mount" --dir "$work/run" -f "${daemon_options[@]}" >"$work/gshmd.log" 2>&1 &
daemon=$!
# Waits for the line that says that gshmd serves, or for its end.
grep -q -m 1 'is ready at' <(tail -n +1 -f --pid="$daemon" "$work/gshmd.log" 2>/dev/null) || die "gshmd has ended"
is_mounted || die "gshmd has not mounted $mount"

run "$bin/test_client" --parent --mount "$mount" --no-wait
run "$bin/test_client" --child --mount "$mount"
outcome="one process wrote the memory behind a file, another found it right"
