"""Fences, mirrors, pools, handles, and devices by UUID."""
import ctypes
import os
import pickle
import subprocess
import sys
import threading

import pytest
from conftest import leases, run_python
from consumer import Taken, look

import gshm

NOT_READY = 600


@pytest.fixture
def cuda(device):
    """The fake driver."""
    if device == "host":
        pytest.skip("host has no streams")
    driver = ctypes.CDLL("libcuda.so.1")
    if not hasattr(driver, "fakecuda_hold"):
        pytest.skip("only the fake driver holds a stream back")
    return driver


def test_a_fence_counts_and_is_waited_for(client, device):
    made = client.create("a", 8, device=device)
    writer = made.fence(write=True)
    with pytest.raises(gshm.Busy):
        made.fence(write=True)
    with client.open("a").fence() as reader:
        assert reader.published == 0
        with pytest.raises(gshm.Timeout):
            reader.wait(timeout=0.01)
        thread = threading.Thread(target=writer.publish)
        thread.start()
        assert reader.wait(timeout=60) == 1
        thread.join()
        assert writer.publish() == 2 and reader.published == 2 and reader.wait(2) == 2
        assert reader.is_complete(1) and not reader.is_complete(3)
        writer.close()
        with pytest.raises(gshm.Error):
            reader.wait(3)
    with pytest.raises(ValueError):
        reader.wait()


def test_a_dead_writer_is_reported(client, gshmd, device):
    made = client.create("a", 8, device=device, keep=True)
    code = """
import sys, os, gshm
fence = gshm.connect(sys.argv[1]).open("a", write=True).fence(write=True)
fence.publish()
os.kill(os.getpid(), 9)
"""
    made.close()
    assert run_python(code, gshmd.dir).returncode == -9
    with client.open("a").fence() as fence:
        assert fence.wait(1) == 1
        with pytest.raises(gshm.OwnerDead):
            fence.wait(2)


def test_a_stream_of_a_consumer_waits_for_the_writer(client, gshmd, device, cuda):
    """The writer's stream is held back; the reader's follows it, and its CPU does not wait."""
    client.create("a", 8, device=device, keep=True).close()
    code = """
import sys, ctypes, gshm
cuda = ctypes.CDLL("libcuda.so.1")
made = gshm.connect(sys.argv[1]).open("a", write=True)
stream = ctypes.c_void_p()
made.fill(0)
context = ctypes.c_void_p()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxPushCurrent_v2(context) == 0
assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
cuda.fakecuda_hold(stream, 1)
fence = made.fence(write=True)
assert fence.publish(stream.value) == 1
print("published", flush=True)
sys.stdin.readline()
cuda.fakecuda_hold(stream, 0)
sys.stdin.readline()
"""
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(gshmd.dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert writer.stdout.readline() == "published\n"
    seen = client.open("a")
    stream, context = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxPushCurrent_v2(context) == 0
    assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0

    def query():
        event = ctypes.c_void_p()
        assert cuda.cuEventCreate(ctypes.byref(event), 0) == 0 and cuda.cuEventRecord(event, stream) == 0
        return cuda.cuEventQuery(event)

    seen.__dlpack__(stream=-1)
    assert cuda.cuStreamSynchronize(stream) == 0  # not made to wait
    tensor = Taken(seen.view("uint8").__dlpack__(stream=stream.value))
    assert query() == NOT_READY
    writer.stdin.write("\n")
    writer.stdin.flush()
    assert cuda.cuStreamSynchronize(stream) == 0
    assert seen.__cuda_array_interface__["stream"] == 1
    tensor.delete()
    writer.communicate("\n")
    assert writer.returncode == 0


def test_ids_follow_the_uuid_of_the_gpu(device, tmp_path, cuda):
    """The daemon's cuda:1 is the first GPU of a process that sees no other."""
    code = """
import os, sys, pathlib
sys.path.insert(0, sys.argv[1])
import conftest
d = conftest.Gshmd(pathlib.Path(sys.argv[2]))
os.environ["FAKECUDA_DEVICES"] = "2"
d.start()
try:
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    ended = conftest.run_python('''
import sys, gshm
c = gshm.connect(sys.argv[1])
o = c.create("a", 8, device="cuda:1")
print(o.device, o.__dlpack_device__())
''', d.dir)
    del os.environ["CUDA_VISIBLE_DEVICES"]
finally:
    d.stop()
print(ended.stdout, ended.stderr)
"""
    ended = run_python(code, os.path.dirname(__file__), tmp_path / "run")
    assert ended.stdout.split("\n")[0] == "cuda:1 (2, 0)", ended.stdout + ended.stderr


def test_mirrors(client, device):
    made = client.create("a", 100, device=device)
    made.fill(1)
    with made.mirror(write=True) as mirror:
        view = mirror.memoryview()
        assert bytes(view) == bytes([1]) * 100 and mirror.size == 100
        view[10:13] = b"abc"
        mirror.mark(10, 3)
        mirror.flush()
        assert made.read(10, 3) == b"abc"
        view[20] = 7
        mirror.flush(20, 1)
        made.write(b"z", 30)
        mirror.load(30, 1)
        assert view[30] == ord("z")
        view[40] = 9
        mirror.mark(40, 1)
        del view
    assert made.read(20, 1) == b"\x07" and made.read(40, 1) == b"\x09"
    with made.mirror(offset=10, size=3) as mirror:
        assert bytes(mirror.memoryview()) == b"abc" and mirror.memoryview().readonly
        with pytest.raises(gshm.Denied):
            mirror.mark()
    with pytest.raises(ValueError):
        mirror.memoryview()
    with pytest.raises(gshm.Invalid):
        made.mirror(offset=101)


def test_pools(client, device):
    pool = client.pool(device, slab_bytes=1 << 20)
    first = pool.empty((8, 8), "float32")
    second = pool.empty(100)
    assert first.nbytes == 256 and first.ptr % 512 == 0 and second.ptr != first.ptr and first.writable
    stats = pool.stats()
    assert stats.allocations == 2 and stats.slabs == 1 and stats.used_bytes >= 356
    place = gshm.locate(second.ptr + 50)
    assert place.device == device and place.size_bytes >= 50
    with pytest.raises(gshm.Invalid):
        gshm.locate(1)
    del second
    assert pool.stats().allocations == 1
    tensor = Taken(first.__dlpack__(max_version=(1, 0)))
    assert tensor.managed.flags == 0
    first.close()
    assert pool.stats().allocations == 1
    pool.close()  # its memory lasts
    tensor.delete()
    with pytest.raises(ValueError):
        pool.empty(1)
    small = client.pool(device, slab_bytes=1 << 20, limit_bytes=1 << 20)
    with pytest.raises(gshm.Full):
        small.empty(1 << 22)
    small.trim()
    assert small.stats().slabs == 0


def test_another_process_opens_memory_of_a_pool(client, device):
    pool = client.pool(device, slab_bytes=1 << 20)
    pool.empty(1000)
    made = pool.empty((4, 2), "int32")
    again = pickle.loads(pickle.dumps(made))
    assert again.shape == (4, 2) and again.writable
    row = pickle.loads(pickle.dumps(made.view(shape=(2,), offset=8)))
    whole = client.open_id(gshm.locate(made.ptr).id, write=True)
    whole.write(bytes(range(32)), gshm.locate(made.ptr).offset)
    assert made.tobytes() == again.tobytes() == bytes(range(32)) and row.tobytes() == bytes(range(8, 16))


def test_handles_for_other_programs(client, device):
    made = client.create("a", 100, device=device, dedicated=True)
    made.fill(5)
    handle = made.export_fd()
    assert handle.size_bytes == 100 and handle.extent_bytes >= 100
    try:
        local = "host" if device == "host" else "cuda:0"
        again = gshm.import_object("fd", local, handle.value, handle)
        assert again.tobytes() == bytes([5]) * 100 and not again.writable
    finally:
        os.close(handle.value)
    with pytest.raises(ValueError):
        gshm.import_object("carrier pigeon", device, 0, handle)
    with pytest.raises(gshm.Error):
        made.export_fabric()


def test_moving_between_devices(client, device):
    if device == "host":
        pytest.skip("there is no other device")
    with client.create("a", 100, device="host") as made:
        made.fill(7)
    client.move("a", device)
    seen = client.open("a")
    assert seen.device == device and seen.read() == bytes([7]) * 100 and look(seen.__dlpack__()).tensor.device_type == 2


def test_ids(client, device):
    with client.create("a", (2, 2), "int16", device) as made:
        made.fill(1)
    seen = client.open_id(made.id)
    assert seen.shape == (8,) and seen.name is None and seen.tobytes() == bytes([1]) * 8
    assert client.open_id(made.id, shape=(2, 2), dtype="int16").shape == (2, 2)
    assert leases(client, "a") == 1
    with pytest.raises(ValueError):
        seen.attributes
    with pytest.raises(gshm.NotFound):
        client.open_id(1 << 60)


