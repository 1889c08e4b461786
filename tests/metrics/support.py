"""A gshmd in a folder of its own, and scrapes of its metrics. For the tests of this folder, which are programs."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SKIPPED = 77


def skip(reason):
    print("SKIPPED:", reason)
    sys.exit(SKIPPED)


def eventually(look, what):
    """Looks until the result is true, and returns it. Fails after some minutes, which only a broken product reaches."""
    for _ in range(24000):
        found = look()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"never: {what}; last: {found!r}")


class Answer:
    def __init__(self, text):
        head, _, self.body = text.partition("\r\n\r\n")
        lines = head.split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}


def read_all(connection):
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts).decode()


def parse(text):
    """Samples of Prometheus' text format, by name with labels in alphabetical order."""
    samples = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        found = re.fullmatch(r'([a-z_]+)(?:\{((?:[A-Za-z_]+="(?:[^"\\]|\\.)*",?)*)\})? ([^ ]+)', line)
        assert found, line
        labels = sorted(re.findall(r'([A-Za-z_]+)="((?:[^"\\]|\\.)*)"', found[2] or ""))
        key = found[1] + "".join(f" {name}={value}" for name, value in labels)
        assert key not in samples, f"twice: {key}"
        samples[key] = float(found[3])
    return samples


class Gshmd:
    """Use as a context. `bin_folder` has gshmd and gshm."""

    def __init__(self, bin_folder):
        self.bin = bin_folder
        self.scratch = tempfile.mkdtemp(prefix="gshm-test-")
        os.chmod(self.scratch, 0o755)
        self.dir = self.scratch + "/run"
        self.log = self.scratch + "/gshmd.log"
        self.process = None
        self.children = []

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            child.wait()
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()
        if failure[0]:
            print(open(self.log).read())
        shutil.rmtree(self.scratch, ignore_errors=True)

    def start(self, *options, program=None, by=(), env=None):
        size = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        with open(self.log, "ab") as log:
            process = subprocess.Popen(
                [*by, program or self.bin + "/gshmd", "-f", "--config", "none", "--dir", self.dir, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **(env or {})})

        def said():
            with open(self.log) as log:
                log.seek(size)
                return log.read()

        eventually(lambda: "is ready at" in said() or process.poll() is not None, "gshmd is ready")
        assert process.poll() is None, said()
        former, self.process = self.process, process
        return former, said()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def run(self, *arguments, **options):
        return subprocess.run([self.bin + "/gshm", "--dir", self.dir, *arguments], capture_output=True, text=True, **options)

    def gshm(self, *arguments, **options):
        done = self.run(*arguments, **options)
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    def json(self, *arguments):
        return json.loads(self.gshm("--json", *arguments))

    def begin(self, *arguments):
        """A gshm that goes on, until the end of the test at the latest."""
        child = subprocess.Popen([self.bin + "/gshm", "--dir", self.dir, *arguments],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.children.append(child)
        return child

    def connect(self, address=None):
        if address:
            host, _, port = address.rpartition(":")
            return socket.create_connection((host.strip("[]"), int(port)))
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.dir + "/metrics.sock")
        return connection

    def ask(self, request="GET /metrics HTTP/1.1\r\n\r\n", address=None):
        with self.connect(address) as connection:
            connection.sendall(request.encode())
            return Answer(read_all(connection))

    def scrape(self):
        answer = self.ask()
        assert answer.status == 200, answer.status
        return parse(answer.body)

    def value(self, key):
        return self.scrape().get(key, 0)

    def awaits(self, key, value):
        eventually(lambda: self.value(key) == value, f"{key} is {value}")
