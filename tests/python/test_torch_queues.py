"""torch.multiprocessing with tensors of gshm: they are sent by reference."""
import subprocess
import sys

import pytest
import torch
import torch.multiprocessing as mp
from conftest import leases

import gshm
import gshm.torch
from gshm.torch.reductions import reduce_tensor


def echo(inbox, outbox):
    while True:
        received = inbox.get()
        if received is None:
            return
        if not received.is_leaf:
            received = received.detach()
        outbox.put((received.sum().item(), tuple(received.shape), type(received).__name__))


@pytest.fixture
def other():
    """A process that was not forked."""
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=echo, args=(inbox, outbox))
    process.start()

    def ask(tensor):
        inbox.put(tensor)
        return outbox.get(timeout=60)

    yield ask
    inbox.put(None)
    process.join()


def test_tensors_of_objects_and_pools(client, device, place, other):
    with client.create("a", (4, 4), "float32", device) as made:
        made.torch()[...] = torch.arange(16.0, device=place).view(4, 4)
    tensor = torch.from_dlpack(client.open("a"))
    assert reduce_tensor(tensor)[0].__module__ == "gshm.torch.reductions"
    assert other(tensor) == (120, (4, 4), "Tensor")
    assert other(tensor[1:, 2]) == (6 + 10 + 14, (3,), "Tensor") and other(tensor.t()[3]) == (3 + 7 + 11 + 15, (4,), "Tensor")
    assert other(torch.nn.Parameter(tensor, requires_grad=False)) == (120, (4, 4), "Parameter")
    pool = client.pool(device, slab_bytes=1 << 20)
    block = pool.empty((2, 3), "int64").torch()
    block[...] = 5
    assert reduce_tensor(block)[0].__module__ == "gshm.torch.reductions" and other(block) == (30, (2, 3), "Tensor")
    assert other(torch.ones(3)) == (3, (3,), "Tensor"), "torch's own way for others"
    gshm.torch.save({"w": torch.full((3,), 2.0, device=place)}, "s", client=client).wait()
    assert other(gshm.torch.load_state("s", client=client)["w"]) == (6, (3,), "Tensor")


SENDER = """
import pickle, sys, torch, gshm, gshm.torch
from multiprocessing.reduction import ForkingPickler
c = gshm.connect(sys.argv[1])
pool = c.pool("host", name="kept", slab_bytes=1 << 20, keep=True)
t = pool.empty((4,), "float32").torch()
t[...] = 3
if t.is_cuda: torch.cuda.synchronize()
sys.stdout.buffer.write(bytes(ForkingPickler.dumps(t)))
sys.stdout.flush()
import os; os.kill(os.getpid(), 9)
"""


def test_the_sender_may_be_gone(client, gshmd, device, place):
    import pickle

    ended = subprocess.run([sys.executable, "-c", SENDER, str(gshmd.dir), device], capture_output=True)
    assert ended.returncode == -9, ended.stderr
    tensor = pickle.loads(ended.stdout)
    assert tensor.tolist() == [3, 3, 3, 3]
    ((name, _),) = client.list("kept")
    client.unlink(f"kept/{name}")
    assert tensor.tolist() == [3, 3, 3, 3], "the tensor keeps it"


def test_kept_pools_can_be_sealed(client, device, place):
    pool = client.pool(device, name="kept", slab_bytes=1 << 20)
    first = pool.empty((4,), "int32")
    first.torch()[...] = 1
    pool.seal()
    second = pool.empty((4,), "int32")
    assert client.open_id(gshm.locate(first.ptr).id).sealed
    assert gshm.locate(second.ptr).id != gshm.locate(first.ptr).id
    assert reduce_tensor(first.torch())[0].__module__ == "gshm.torch.reductions"
    pool.close()
    del first, second
    assert [info.state for _, info in client.list("kept")] == ["sealed"]


def test_an_address_belongs_to_the_object_while_there_are_tensors(client, device, place):
    with client.create("a", 4096, device=device) as made:
        made.fill(1)
    opened = client.open("a")
    first, second = torch.from_dlpack(opened), torch.from_dlpack(opened.view(shape=(4,), offset=8))
    address = opened.ptr
    assert gshm.locate(address + 4095) == (opened.id, 4095, 1, device, client.dir)
    for outside in (address - 1, address + 4096):
        with pytest.raises(gshm.Invalid):
            gshm.locate(outside)
    del first
    assert gshm.locate(address).id == opened.id
    del second
    with pytest.raises(gshm.Invalid):
        gshm.locate(address)
    tensor = torch.from_dlpack(opened)
    client.unlink("a")
    assert reduce_tensor(tensor)[0].__module__ != "gshm.torch.reductions", "others cannot open it any more"


def test_a_gradient_does_not_cross_processes(client, device, place):
    with client.create("a", (4,), "float32", device) as made:
        made.fill(0)
    tensor = torch.from_dlpack(client.open("a")).requires_grad_(True) * 2
    with pytest.raises(RuntimeError, match="autograd"):
        reduce_tensor(tensor)


def test_references_leave_nothing(client, device, place):
    import pickle
    from multiprocessing.reduction import ForkingPickler

    with client.create("a", (4,), "float32", device) as made:
        made.fill(0)
    tensor = torch.from_dlpack(client.open("a"))
    assert leases(client, "a") == 1
    for _ in range(50):
        again = pickle.loads(bytes(ForkingPickler.dumps(tensor)))
    assert leases(client, "a") == 2
    del again
    assert leases(client, "a") == 1
