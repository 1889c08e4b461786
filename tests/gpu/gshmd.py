"""A gshmd for scripts: tests of the GPU suite, and benchmarks. No package is needed."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading


class NotStarted(Exception):
    """With what gshmd has printed."""


def find_programs(root, folder=None):
    """The folder of gshmd and gshm: the one given, $GSHM_BIN, or bin or build/bin below the root. None: there is none."""
    given = folder or os.environ.get("GSHM_BIN")
    folders = [pathlib.Path(given)] if given else []
    if not folder:
        folders += [pathlib.Path(root) / "bin", pathlib.Path(root) / "build" / "bin"]
    return next((one.resolve() for one in folders if (one / "gshmd").exists()), None)


def library_of(programs):
    return programs.parent / "lib" / "libgshm.so.0"


class Running:
    """A gshmd that serves, and a folder that is removed with it."""

    def __init__(self, programs, work, options):
        self.programs, self.library, self.work, self.directory = programs, library_of(programs), work, work / "run"
        self.log = []
        self._process = subprocess.Popen([programs / "gshmd", "--dir", self.directory, "-f", *options],
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self._process.stdout:
            self.log.append(line)
            if "is ready at" in line:
                break
        else:
            self._process.wait()
            raise NotStarted("".join(self.log))
        # A pipe that is not read would block it.
        threading.Thread(target=lambda: self.log.extend(self._process.stdout), daemon=True).start()

    def end(self):
        self._process.terminate()
        self._process.wait()


@contextlib.contextmanager
def running(programs, *options, folder=None):
    """A gshmd with a new runtime folder, below `folder` if one is given."""
    work = pathlib.Path(tempfile.mkdtemp(prefix="gshm-script-", dir=folder))
    try:
        daemon = Running(programs, work, options)
        try:
            yield daemon
        finally:
            daemon.end()
    finally:
        shutil.rmtree(work, ignore_errors=True)
