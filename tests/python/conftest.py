"""Fixtures: a gshmd of its own for each test, on the device of $GSHM_TEST_DEVICE ("host", or "cuda:0" with the fake driver)."""
from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any, Dict, Iterable, Iterator, List, Optional

import pytest

try:
    import hypothesis
except ImportError:  # on a GPU machine; tests that need it say so
    hypothesis = None

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GSHM_TEST_BUILD", SOURCE / "build"))
DEVICE = os.environ.get("GSHM_TEST_DEVICE", "host")
os.environ.setdefault("GSHM_LIBRARY", str(BUILD / "lib" / "libgshm.so.0"))
sys.path.insert(0, str(SOURCE / "python"))
os.environ["PYTHONPATH"] = f"{SOURCE / 'python'}:{pathlib.Path(__file__).parent}"  # for processes that tests start

import gshm  # noqa: E402

if hypothesis is not None:
    hypothesis.settings.register_profile("gshm", database=None, deadline=None, print_blob=True)
    hypothesis.settings.load_profile("gshm")


class Gshmd:
    """A daemon in a runtime folder. It is ended, with its keeper, at the end of the test."""

    def __init__(self, dir: pathlib.Path, options: Iterable[str] = ()) -> None:
        self.dir = dir
        self._options = list(options)
        self.process: Optional[subprocess.Popen[str]] = None

    def start(self) -> None:
        devices = ["--device", "host:256M"] if DEVICE == "host" else ["--device", "cuda", "--device", "host:256M"]
        self.process = subprocess.Popen(
            [str(BUILD / "bin" / "gshmd"), "--dir", str(self.dir), "-f", *devices, *self._options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if "is ready at" in line:
                return
        raise RuntimeError(f"gshmd does not serve; it printed: {said}")

    def kill(self) -> None:
        """As by kill -9: the keeper holds the memory for the next start()."""
        assert self.process is not None
        self.process.kill()
        self._reap()

    def stop(self) -> None:
        if self.process is None:
            self.start()  # ends the keeper, too
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self._reap()

    def _reap(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        self.process.wait()
        self.process.stdout.close()
        self.process = None


@pytest.fixture
def gshmd() -> Iterator[Gshmd]:
    with tempfile.TemporaryDirectory(prefix="gshm-python.") as folder:
        daemon = Gshmd(pathlib.Path(folder) / "run")
        daemon.start()
        try:
            yield daemon
        finally:
            daemon.stop()


@pytest.fixture
def client(gshmd: Gshmd) -> Iterator[gshm.Client]:
    with gshm.connect(gshmd.dir, timeout=30) as made:
        yield made


@pytest.fixture
def device() -> str:
    return DEVICE


@pytest.fixture
def on_host(device: str) -> None:
    if device != "host":
        pytest.skip("the CPU cannot access memory of this device")


@pytest.fixture
def place(device: str) -> str:
    """The device for torch."""
    if device == "host":
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch of the distribution has no GPU")
    return device


class Rounds:
    """What threads do again and again until it is `over`. Whoever waits for rounds is woken by each, and by a failure."""

    def __init__(self) -> None:
        self.over = False
        self.failures: List[Any] = []
        self._counts: Dict[str, int] = {}
        self._changed = threading.Condition()

    def done(self, name: str) -> None:
        with self._changed:
            self._counts[name] = self._counts.get(name, 0) + 1
            self._changed.notify_all()

    def fail(self, error: Any) -> None:
        with self._changed:
            self.failures.append(error)
            self._changed.notify_all()

    def wait_for(self, names: Iterable[str], more: int) -> None:
        """Until each name has so many rounds more, or something has failed."""
        with self._changed:
            goals = {name: self._counts.get(name, 0) + more for name in names}
            self._changed.wait_for(
                lambda: self.failures or all(self._counts.get(name, 0) >= goal for name, goal in goals.items())
            )


def leases(client: gshm.Client, name: str) -> int:
    # A close is a message without a reply. Those of the connection that references and loads use may be on their way.
    for (pid, dir), shared in list(gshm.references._shared.items()):
        if pid == os.getpid() and dir == client.dir and shared is not client and shared._connection is not None:
            shared.ping()
    return sum(one.leases for one in client.holders(name))


def run_python(code: str, *arguments: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Another interpreter, with the same environment."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=timeout
    )
