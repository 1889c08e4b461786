"""Leases end with the last array, view and tensor, in any order; across threads, fork and the end of the interpreter."""
import gc
import itertools
import multiprocessing
import os
import pickle
import signal
import threading

import numpy
import pytest
import torch
from conftest import leases, run_python
from consumer import Taken

import gshm


@pytest.fixture
def sealed(client, device):
    with client.create("a", (4, 4), "int32", device) as made:
        made.write(bytes(range(64)))
    return "a"


def test_every_order_of_deletion(client, sealed, on_host):
    makers = {
        "object": lambda one: one,
        "view": lambda one: one.view("uint8"),
        "capsule": lambda one: one.__dlpack__(max_version=(1, 0)),
        "tensor": torch.from_dlpack,
        "buffer": lambda one: one.memoryview(),
        "array": lambda one: one.numpy(),
    }
    for order in itertools.islice(itertools.permutations(makers), 0, None, 7):
        opened = client.open(sealed)
        made = {name: make(opened) for name, make in makers.items()}
        del opened
        for name in order:
            assert leases(client, sealed) == 1, order
            made.pop(name)
        assert leases(client, sealed) == 0, order


def test_close_gives_up_the_lease_unless_others_need_it(client, sealed, device):
    opened = client.open(sealed)
    opened.close()
    assert leases(client, sealed) == 0
    opened = client.open(sealed)
    taken = Taken(opened.__dlpack__())
    opened.close()
    assert leases(client, sealed) == 1
    taken.delete()
    assert leases(client, sealed) == 0


def test_an_array_keeps_the_memory_and_its_object_can_be_closed(client, sealed, on_host):
    opened = client.open(sealed)
    array = opened.numpy()
    opened.close()
    with pytest.raises(ValueError):
        opened.ptr
    assert leases(client, sealed) == 1 and array.tobytes() == bytes(range(64))
    del array
    assert leases(client, sealed) == 0


def test_numpy_keeps_the_memory_after_close(client, sealed, on_host):
    opened = client.open(sealed)
    array = numpy.asarray(opened)
    opened.close()
    del opened
    gc.collect()
    assert leases(client, sealed) == 1 and array.tobytes() == bytes(range(64))
    part = array[1:]
    del array
    assert leases(client, sealed) == 1 and part.tobytes() == bytes(range(16, 64))
    del part
    assert leases(client, sealed) == 0


def test_an_unconsumed_capsule_frees_its_tensor(client, sealed):
    for max_version in (None, (1, 0)):
        capsule = client.open(sealed).__dlpack__(max_version=max_version)
        assert leases(client, sealed) == 1
        del capsule
        assert leases(client, sealed) == 0


def test_objects_outlive_their_client(gshmd, client, sealed, on_host):
    other = gshm.connect(gshmd.dir)
    tensor = torch.from_dlpack(other.open(sealed))
    unsealed = other.create("unsealed", 8)  # is removed at the end of the session, with the lease
    other.close()
    del other
    assert tensor.sum() == numpy.arange(64, dtype="uint8").view("int32").sum(dtype="int64")
    del tensor, unsealed
    client.wait("unsealed", "gone", timeout=60)
    assert leases(client, sealed) == 0


def test_threads_share_an_object(client, sealed, device):
    shared = client.open(sealed)
    failures = []

    def work():
        try:
            for _ in range(200):
                assert shared.tobytes() == bytes(range(64))
                Taken(shared.__dlpack__(max_version=(1, 0))).delete()
                client.open(sealed).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failures == [] and leases(client, sealed) == 1


def test_deleters_run_in_threads_without_the_interpreters_lock(client, sealed):
    taken = [Taken(client.open(sealed).__dlpack__()) for _ in range(50)]
    threads = [threading.Thread(target=one.delete) for one in taken]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert leases(client, sealed) == 0


def test_a_forked_child_keeps_the_memory_and_connects_again(gshmd, client, sealed, on_host):
    opened = client.open(sealed)
    tensor, array = torch.from_dlpack(opened), numpy.asarray(opened)
    view = client.open(sealed).memoryview()
    expected = array.tolist()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for use in (client.ping, opened.read, opened.__dlpack__, lambda: opened.stat()):
                with pytest.raises(gshm.Forked):
                    use()
            assert tensor.tolist() == array.tolist() == view.tolist() == expected
            opened.close()
            del opened, tensor
            client.close()
            gc.collect()
            assert array.tolist() == view.tolist() == expected
            with gshm.connect(gshmd.dir) as again:
                assert again.open(sealed).read() == bytes(range(64))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert leases(client, sealed) == 2 and opened.read() == bytes(range(64))


def test_the_interpreter_ends_with_everything_alive(gshmd, client, sealed, on_host, tmp_path):
    code = """
import sys, gshm, numpy, torch
c = gshm.connect(sys.argv[1])
o = c.open("a")
capsule, versioned = o.__dlpack__(), c.open("a").__dlpack__(max_version=(1, 0))
tensor, array, view = torch.from_dlpack(o), numpy.asarray(c.open("a")), c.open("a").memoryview()
watch, ring, pool, fence = c.watch(), c.ring(), c.pool("host", slab_bytes=1 << 20), o.fence()
block = pool.empty((4,), "float32"); kept = torch.from_dlpack(block)
import asyncio, threading
aring = c.async_ring(); file = aring.add_file(sys.argv[2])
part = c.create("part", 64)
assert asyncio.run(aring.read(file, 0, part)) == 64
blocked = c.watch("nothing")
for wait in (lambda: c.wait("nothing"), blocked.next, lambda: o.fence().wait(99)):
    threading.Thread(target=wait, daemon=True).start()
mirror = o.mirror()
gshm.set_log(lambda level, message: None, "debug")
class Late:
    def __del__(self, view=view, array=array): assert view[0, 0] == array[0, 0]
sys.modules["late"] = Late()
torch.late = (tensor, capsule, versioned, Late())
print("alive")
"""
    (tmp_path / "file").write_bytes(bytes(64))
    for _ in range(3):
        ended = run_python(code, gshmd.dir, tmp_path / "file")
        assert ended.returncode == 0 and ended.stdout == "alive\n" and ended.stderr == "", ended.stderr
        client.wait("part", "gone", timeout=60)  # what is not sealed is removed at the end of its session, with the leases
    assert leases(client, sealed) == 0


def test_a_killed_process_leaves_no_lease_and_no_unsealed_object(gshmd, client, sealed):
    code = """
import sys, gshm
c = gshm.connect(sys.argv[1])
o, n = c.open("a"), c.create("unsealed", 8)
print("ready", flush=True)
sys.stdin.read()
"""
    import subprocess
    import sys

    process = subprocess.Popen(
        [sys.executable, "-c", code, str(gshmd.dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"ready\n"
    assert leases(client, sealed) == 1
    process.send_signal(signal.SIGKILL)
    process.communicate()
    client.wait("unsealed", "gone", timeout=60)
    assert leases(client, sealed) == 0


# ---- references ----
def double(array):
    return (array.tobytes(), array.shape, str(array.dtype), type(array).__name__)


def test_objects_pickle_as_references(client, sealed, device):
    opened = client.open(sealed)
    data = pickle.dumps(opened)
    assert len(data) < 400
    again = pickle.loads(data)
    assert double(again) == double(opened) and again.id == opened.id and again.name == "a" and again.sealed
    row = pickle.loads(pickle.dumps(opened.view(shape=(4,), offset=16)))
    assert row.tobytes() == bytes(range(16, 32)) and row.shape == (4,) and leases(client, sealed) == 3
    again_row = pickle.loads(pickle.dumps(row))
    assert again_row.tobytes() == row.tobytes()
    client.unlink(sealed)
    with pytest.raises(gshm.NotFound):
        pickle.loads(data)
    with pytest.raises(TypeError):
        pickle.dumps(opened.copy())
    assert pickle.loads(pickle.dumps(client)).dir == client.dir


def test_a_reference_to_an_open_object_opens_for_writing(client, device):
    made = client.create("open", 8, device=device, dedicated=True)
    data = pickle.dumps(made)
    again = pickle.loads(data)
    again.write(b"abcdefgh")
    assert made.read() == b"abcdefgh"
    again.close()
    made.seal()
    assert not pickle.loads(data).writable


def test_other_processes_get_objects_through_queues(client, sealed, on_host):
    opened = client.open(sealed)
    for method in ("spawn", "fork"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            for result in pool.map(double, [opened, opened.view("uint8"), opened]):
                assert result[0] == bytes(range(64))
