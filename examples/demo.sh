#!/usr/bin/env bash
# A tour of gshm in one terminal: `./dev demo` builds and calls this. GSHM_BIN is the folder of the programs. Everything
# is in one temporary folder and one daemon. Both are removed at the end, also after Ctrl-C or a failure.
set -euo pipefail

bin=${GSHM_BIN:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/bin}
for program in gshmd gshm producer consumer weights_writer weights_reader; do
    if [[ ! -x $bin/$program ]]; then
        echo "demo: $bin/$program is missing; build first: ./dev build" >&2
        exit 1
    fi
done
export PATH="$bin:$PATH"

work=$(mktemp -d "${TMPDIR:-/tmp}/gshm-demo.XXXXXX")
export GSHM_DIR=$work/run # where gshm and the examples find the daemon
socket=$work/example.sock
step_number=0
step_title="starting"
finished=""

# Prints the pid of the daemon of our folder, if it runs: found by the folder on its command line.
daemon_pids() {
    local process arguments
    for process in /proc/[0-9]*; do
        { arguments=$(tr '\0' ' ' <"$process/cmdline"); } 2>/dev/null || continue
        if [[ $arguments == *"gshmd --dir $GSHM_DIR "* ]]; then echo "${process#/proc/}"; fi
    done
}

# Returns when the daemons have ended; they are not children of this shell.
wait_for_daemons() {
    local pid
    for pid in $(daemon_pids); do tail -f --pid="$pid" /dev/null; done
}

clean_up() {
    local status=$? pid
    trap - EXIT INT TERM HUP
    set +e
    for pid in $(jobs -p); do # the shell's own list: it has a child from the moment it is started
        kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    if [[ -n $(daemon_pids) ]]; then
        # A daemon that does not answer the request is killed.
        if gshm shutdown >/dev/null 2>&1; then wait_for_daemons; fi
        for pid in $(daemon_pids); do kill -KILL "$pid"; done
    fi
    rm -rf "$work"
    if [[ -n $finished ]]; then
        printf '\nDemo PASSED: %s\n' "$finished"
        exit 0
    fi
    local what=FAILED
    if ((status > 128)); then what=STOPPED; fi
    printf '\nDemo %s in step %d (%s); nothing is left behind.\n' "$what" "$step_number" "$step_title" >&2
    exit $((status ? status : 1))
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

step() { # title, explanation
    step_number=$((step_number + 1))
    step_title=$1
    printf '\n== %d. %s\n   %s\n' "$step_number" "$1" "$2"
}
say() { printf '   %s\n' "$*"; }
indent() { sed 's/^/     /'; }

# Shows a command and its output.
run() {
    printf '   $ %s\n' "$*"
    "$@" 2>&1 | indent
}

# Starts a command in the background with its output in a file; its pid is in $started.
start() { # file, command...
    local file=$1
    shift
    printf '   $ %s &\n' "$*"
    : >"$file" # exists before the command runs
    "$@" >"$file" 2>&1 &
    started=$!
}

# Waits until the background command has printed a line that begins with the text.
wait_for_line() { # file, pid, text
    if grep -q -m 1 "^$3" <(tail -n +1 -f --pid="$2" "$1" 2>/dev/null); then return 0; fi
    indent <"$1"
    say "it did not come to: $3"
    return 1
}

kill_hard() { # pid
    printf '   $ kill -KILL %d\n' "$1"
    kill -KILL "$1"
    { wait "$1" || true; } 2>/dev/null
}

step "Start the daemon" "gshmd owns the memory; it goes to the background once it is ready to serve."
run gshmd --dir "$GSHM_DIR"
run gshm devices
device=$(gshm devices | grep -o 'cuda:[0-9]*' | head -n 1 || true)
if [[ -n $device ]]; then
    say "Using the GPU: $device"
else
    device=host
    say "No GPU here: using host memory instead"
fi

step "Two processes share memory without the daemon" \
    "The producer exports its allocation as a file descriptor, the consumer imports it."
start "$work/producer.log" producer --device "$device" --socket "$socket" --timeout 30
producer=$started
wait_for_line "$work/producer.log" "$producer" "Waiting for consumer"
run consumer --device "$device" --socket "$socket"
wait "$producer"
say "and the producer, meanwhile:"
indent <"$work/producer.log"

step "A process publishes data under a name" \
    "It creates an object, copies 262144 integers in and seals it: from then on it is immutable."
start "$work/writer.log" weights_writer --device "$device"
writer=$started
wait_for_line "$work/writer.log" "$writer" "Holding"
indent <"$work/writer.log"

step "Another process reads it" "It waits until the name is sealed, then maps the same memory."
run weights_reader

step "Look at it from the shell" "Names are paths; every byte on the device has an owner that can be seen."
run gshm ls -l demo
run gshm stat demo/weights
run gshm holders demo/weights
sum_before=$(gshm cat demo/weights | cksum)

step "Kill the writer and read again" "The memory is the daemon's, so nothing is lost with the process that wrote it."
kill_hard "$writer"
run weights_reader
run weights_reader --no-map
sum_after=$(gshm cat demo/weights | cksum)
say "cksum before: $sum_before, after: $sum_after"
[[ $sum_before == "$sum_after" ]]

step "What was never sealed goes with its writer" "Half-written data of a dead process is reclaimed by itself."
start "$work/draft.log" weights_writer --device "$device" --name demo/draft --no-seal
draft=$started
wait_for_line "$work/draft.log" "$draft" "Holding"
run gshm ls -l demo
kill_hard "$draft"
run gshm wait demo/draft --gone --timeout 30
run gshm ls -l demo

step "Stop" "Memory in use, and then none: the daemon ends and the device is free again."
run gshm df
run gshm shutdown
wait_for_daemons
[[ -z $(daemon_pids) ]]
finished="the data went from process to process on $device and outlived its writer; nothing is left behind."
