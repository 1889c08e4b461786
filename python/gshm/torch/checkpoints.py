"""States as sealed objects, written to disk in the background."""
from __future__ import annotations

import functools
import os
import threading
import warnings
import weakref
from typing import Any, Callable, List, Optional

from .._abi import REPLACE, lib, text
from ..client import Client
from ..errors import NotFound, make_error
from ..objects import Object
from ..references import default_client
from ..stores import store_object
from ..tables import Table
from ..transfers import Progress
from .states import KEY, flatten, unflatten
from .views import torch, views
from .writing import main_device, write_object

PATH = "gshm.store"  # an attribute: the file that the object is to become


class Saved:
    """A state on its way. The process does not exit before it has arrived."""

    def __init__(self, name: str, path: Optional[str]) -> None:
        self.name = name
        self.path = path
        self._sealed = threading.Event()
        self._done = threading.Event()
        self._unseen: List[str] = []  # the error that wait() has not raised
        self._error: Optional[BaseException] = None
        weakref.finalize(self, _warn, name, self._unseen)

    @property
    def sealed(self) -> bool:
        """Others can open the object."""
        return self._sealed.is_set() and self._error is None

    @property
    def done(self) -> bool:
        """The object is sealed, and the file, if one was asked for, is on disk; or it has failed."""
        return self._done.is_set()

    def wait(self, timeout: Optional[float] = None, *, until: str = "done") -> Saved:
        """Waits until it is "done", or "sealed". Raises the error of the background."""
        if until not in ("done", "sealed"):
            raise ValueError("until is done or sealed")
        if not (self._done if until == "done" else self._sealed).wait(timeout):
            raise make_error(110, f"{self.name} is not {until} in time", self.name)
        if self._error is not None:
            self._unseen.clear()
            raise self._error
        return self

    def _run(self, *steps: Any) -> None:
        try:
            for step in steps:
                step()
        except BaseException as error:
            self._error = error
            self._unseen.append(str(error))
        finally:
            self._sealed.set()
            self._done.set()


def _warn(name: str, unseen: List[str]) -> None:
    """At the end of a Saved, or of the process."""
    for error in unseen:
        warnings.warn(f"the state {name} was not saved: {error}", RuntimeWarning, stacklevel=2)


def save(
    state: Any,
    name: str,
    *,
    path: Any = None,
    client: Optional[Client] = None,
    device: Any = None,
    mode: int = 0o600,
    replace: bool = True,
    progress: Optional[Progress] = None,
) -> Saved:
    """Copies a state (tensors in dicts, lists and tuples, with numbers and texts) to a sealed object. The copy is made in the
    order of torch's current stream: the state may be changed as soon as the call returns. With a path the object is then
    written to a safetensors file. Both happen in the background on a GPU; on the CPU the object is sealed at the return.

    All tensors go to one device: the one given, else that with the most bytes."""
    connection = client or default_client()
    tensors, skeleton = flatten(state)
    to = None if path is None else os.path.abspath(path)
    made, table, _ = write_object(
        connection,
        name,
        tensors,
        {"format": "pt", KEY: skeleton},
        device=main_device(tensors) if device is None else device,
        mode=mode,
        replace=replace,
        attributes=None if to is None else {PATH: to},
    )
    saved = Saved(name, to)

    def publish() -> None:
        # Not made.publish(): it waits for all work on the stream, also for what follows the copy.
        lease = made._need()
        lease.call(lib.publish, text(name), REPLACE if replace else 0)
        lease.sealed, made._unnamed = True, False
        saved._sealed.set()

    steps: List[Callable[[], Any]] = [publish]
    event = _event_of_copies(tensors, made)
    if event is not None:
        steps.insert(0, event.synchronize)
    else:
        publish()
        steps = []
    if to is not None:
        steps.append(functools.partial(_store, made, table, name, to, progress))
    if steps:
        threading.Thread(target=saved._run, args=steps, name="gshm-save").start()
    else:
        saved._run()
    return saved


def _event_of_copies(tensors: Any, made: Object) -> Any:
    """An event after the copies on the GPU; None: they are complete."""
    kind, number = made.__dlpack_device__()
    if kind != 2:
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(number))
    return event


def _store(made: Object, table: Table, name: str, path: str, progress: Optional[Progress]) -> None:
    client = made.client

    def is_current() -> bool:
        """Whether no newer state has the name."""
        try:
            return client.stat(name).id == made.id
        except NotFound:
            return True

    if store_object(made, table, path, progress=progress, is_current=is_current):
        try:
            attributes = client.attributes(name)
            if is_current() and attributes.get(PATH) == os.fsencode(path):
                del attributes[PATH]
        except (KeyError, NotFound):
            pass  # replaced meanwhile


def store(
    name: str, path: Any = None, *, client: Optional[Client] = None, progress: Optional[Progress] = None
) -> Optional[str]:
    """Writes an object of tensors to a safetensors file, and continues a write that was interrupted. Without a path: to that
    of save(), if it is not complete. Returns the path; None: there is nothing to do."""
    connection = client or default_client()
    opened = connection.open(name, sealed=True, map=False)
    if path is None:
        noted = connection.attributes(name).get(PATH)
        if noted is None:
            return None
        to = os.fsdecode(noted)
    else:
        to = os.path.abspath(path)
    _store(opened, Table.of_object(opened), name, to, progress)
    return to


def load_state(name: str, *, client: Optional[Client] = None, wait: Optional[float] = None, copy: bool = False) -> Any:
    """The state of save(). Its tensors are views of the sealed object, and must not be written; with `copy` they are private.
    Of other objects of tensors: a dict."""
    opened = (client or default_client()).open(name, wait=wait, sealed=True)
    table = Table.of_object(opened)
    tensors = views(opened, table.tensors)
    if copy:
        tensors = {key: one.clone() for key, one in tensors.items()}
    return unflatten(table.metadata[KEY], tensors) if KEY in table.metadata else tensors
