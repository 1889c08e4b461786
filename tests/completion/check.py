"""Completions in a real shell, on a terminal: tests/completion/check.py SHELL BUILD_DIR SOURCE_DIR

Types lines with tabs into bash, zsh or fish and compares the arguments that a command then gets. cmake/with-daemon has
started the gshmd. The shell's answers arrive through a fifo, so nothing waits for a time."""

import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

shell, build, source = sys.argv[1:]
gshm = f"{build}/bin/gshm"
run_dir = os.environ["GSHM_TEST_DIR"]

if shutil.which(shell) is None:
    print(f"skipped: {shell} is not installed")
    sys.exit(77)

work = tempfile.mkdtemp(prefix="gshm-completion.")
fifo = f"{work}/fifo"
environment = {
    "HOME": work,
    "ZDOTDIR": work,
    "PATH": f"{build}/bin:{os.environ['PATH']}",
    "TERM": "xterm",
    "LC_ALL": "C.UTF-8",
    "GSHM_DIR": run_dir,
    "GSHM_CONFIG": "none",
}

# The command `args` is completed as gshm is, and gives its arguments to the fifo; `dargs` as gshmd.
BASH = f"""
PS1='$ '; HISTFILE=; bind 'set enable-bracketed-paste off'
args() {{ printf '%s\\0' "$@" end >{fifo}; }}
dargs() {{ args "$@"; }}
source {source}/packaging/completions/gshm.bash; complete -F _gshm args
source {build}/completions/gshmd.bash; complete -F _gshmd dargs
args ready
"""
ZSH = f"""
PS1='$ '; HISTFILE=; setopt no_beep; unset zle_bracketed_paste
fpath=({work}/functions $fpath)
autoload -Uz compinit; compinit -u -D
zstyle ':completion:*' insert-tab false
args() {{ printf '%s\\0' "$@" end >{fifo} }}
dargs() {{ args "$@" }}
compdef _gshm args; compdef _gshmd dargs
args ready
"""
FISH = f"""
function fish_prompt; echo '$ '; end
function args; printf '%s\\0' $argv end >{fifo}; end
function dargs; args $argv; end
source {source}/packaging/completions/gshm.fish; complete -c args -w gshm
source {build}/completions/gshmd.fish; complete -c dargs -w gshmd
args ready
"""

QUOTED = "it's a \"q\" $(touch pwned) `touch pwned` \\ !1 #~"
NAMES = [
    f"with space/{QUOTED}",
    "line\nbreak",
    "semi;touch pwned;&|<>*?",
    "co:lon=x",
    "ünïcode/ö",
    "demo/x",
    "-dash",
    "two/a\nb",
    "two/a\x01b",
    "~tilde",
]

# What is typed, and the arguments that the command gets.
CASES = [
    ("args cr\t x --si\t 4K", ["create", "x", "--size", "4K"]),
    ("args mv x --dev\tho\t", ["mv", "x", "--device", "host"]),
    ("args help unsh\t", ["help", "unshare"]),
    ("args --js\t prom\tx", ["--json", "promote", "x"]),
    ("args cat dem\t\t", ["cat", "demo/x"]),
    ("args cat wi\t\t", ["cat", NAMES[0]]),
    ("args cat 'wi\t\t", ["cat", NAMES[0]]),
    ('args cat "wi\t\t', ["cat", NAMES[0]]),
    ("args cat with\\ sp\t\t", ["cat", NAMES[0]]),
    ("args cat lin\t", ["cat", NAMES[1]]),
    ("args cat sem\t", ["cat", NAMES[2]]),
    ("args cat co:lon\t", ["cat", NAMES[3]]),
    ("args cat co\t", ["cat", NAMES[3]]),
    ("args cat ü\t\t", ["cat", NAMES[4]]),
    ("args cat -- -da\t", ["cat", "--", "-dash"]),
    ("args cat demo/x --len\t 1", ["cat", "demo/x", "--length", "1"]),
    ("args rm demo/x dem\t\t", ["rm", "demo/x", "demo/x"]),
    ("args put fil\tdem\t\t", ["put", "file name.bin", "demo/x"]),
    ("args get demo/x fil\t", ["get", "demo/x", "file name.bin"]),
    # zsh removes the slash that it has added.
    ("args snapshot fol\t", ["snapshot", "folder" if shell == "zsh" else "folder/"]),
    ("args share demo/x --to @roo\t", ["share", "demo/x", "--to", "@root"]),
    ("args attr demo/x col\t red", ["attr", "demo/x", "colour", "red"]),
    (f"args --dir {work}/none cat dem\t", ["--dir", f"{work}/none", "cat", "dem"]),
    ("dargs --stag\t 1M --keeper sys\t", ["--staging", "1M", "--keeper", "systemd"]),
    ("dargs --config fil\t", ["--config", "file name.bin"]),
]
ONLY = {
    # An escape that is cut between two names that differ there.
    "bash": [
        ("args cat two/\t001\t", ["cat", "two/a\x01b"]),
        ("args cat x >fil\t", ["cat", "x"]),
    ],
}


def read_answer():
    with open(fifo, "rb") as stream:
        parts = stream.read().decode().split("\0")
    assert parts[-2:] == ["end", ""], parts
    return parts[:-2]


def command_line():
    if shell == "bash":
        with open(f"{work}/rc", "w") as rc:
            rc.write(BASH)
        return ["bash", "--noprofile", "--rcfile", f"{work}/rc", "-i"]
    if shell == "zsh":
        os.mkdir(f"{work}/functions")
        shutil.copy(f"{source}/packaging/completions/_gshm", f"{work}/functions")
        shutil.copy(f"{build}/completions/_gshmd", f"{work}/functions")
        with open(f"{work}/.zshrc", "w") as rc:
            rc.write(ZSH)
        return ["zsh", "-d", "-i"]
    return ["fish", "--no-config", "-C", FISH]


class Terminal:
    """The shell on a terminal. A thread reads what it shows, so that it never waits for a reader."""

    def __init__(self):
        self.shown = bytearray()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(work)
            arguments = command_line()
            os.execvpe(arguments[0], arguments, environment)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while True:
            try:
                got = os.read(self.fd, 65536)
            except OSError:
                return
            if not got:
                return
            self.shown += got

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        os.close(self.fd)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


failures = 0


def expect(what, wanted, found):
    global failures
    if wanted != found:
        failures += 1
        print(f"{shell}: {what!r}:\n  expected {wanted!r}\n  found    {found!r}")


def check_flags():
    """Every option of --help is a candidate."""
    checked = 0
    for command in candidates(""):
        shown = subprocess.run([gshm, command, "--help"], capture_output=True, text=True, check=True).stdout
        offered = candidates(command, "-")
        for line in shown.splitlines():
            if line.startswith("  -"):
                flag = line.split()[0].split(",")[-1]
                checked += 1
                if flag not in offered:
                    expect(f"{command} {flag}", True, False)
    expect("options found in --help", True, checked > 150)


def candidates(*words):
    answer = subprocess.run([gshm, "--complete", "words", *words], capture_output=True, check=True).stdout
    return answer.decode().split("\0")[1:-1:2]


def main():
    os.mkfifo(fifo)
    os.mkdir(f"{work}/folder")
    open(f"{work}/file name.bin", "w").close()
    for name in NAMES:
        subprocess.run([gshm, "--dir", run_dir, "create", "--size", "4K", "--", name], check=True)
    subprocess.run([gshm, "--dir", run_dir, "attr", "demo/x", "colour", "blue"], check=True)
    if shell == "bash":
        check_flags()

    terminal = Terminal()
    expect("the start", ["ready"], read_answer())
    for typed, wanted in CASES + ONLY.get(shell, []):
        terminal.type(typed + "\n")
        expect(typed, wanted, read_answer())
    expect("a command in a name has run", False, os.path.exists(f"{work}/pwned"))

    # A gshmd that does not answer: the shell goes on without names.
    daemon = int(subprocess.run([gshm, "--dir", run_dir, "--json", "ping"], capture_output=True, text=True, check=True)
                 .stdout.split('"pid":')[1].split(",")[0])
    os.kill(daemon, signal.SIGSTOP)
    try:
        terminal.type("args cat dem\t\n")
        expect("without an answer of gshmd", ["cat", "dem"], read_answer())
    finally:
        os.kill(daemon, signal.SIGCONT)
    terminal.end()
    if failures:
        print(terminal.shown.decode(errors="replace"))


try:
    main()
finally:
    shutil.rmtree(work)
sys.exit(1 if failures else 0)
