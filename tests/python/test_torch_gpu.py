"""gshm.torch on a GPU: streams, pools of torch's allocator, and memory that is used once."""
import pickle
import subprocess
import sys

import pytest
import torch
from conftest import DEVICE, run_python
from files import content, make

import gshm
import gshm.torch

pytestmark = pytest.mark.skipif(
    DEVICE == "host" or not torch.cuda.is_available(), reason="torch of the distribution has no GPU"
)


@pytest.fixture(autouse=True)
def daemon(gshmd, monkeypatch):
    monkeypatch.setenv("GSHM_DIR", str(gshmd.dir))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(make({f"t{n}": ("F32", (1024, 1024)) for n in range(8)}))
    return path


def test_loaded_tensors_use_memory_once(client, file):
    first = gshm.torch.load(file, DEVICE)
    assert all(one.is_cuda and one.data_ptr() % 256 == 0 for one in first.values())
    assert first["t3"].cpu().numpy().tobytes() == content("t3", 4 << 20)
    used = client.df()[0].used_bytes
    code = """
import sys, torch, gshm
m = gshm.torch.load(sys.argv[1], sys.argv[2])
print(sum(one.double().sum().item() for one in m.values()), torch.cuda.memory_allocated())
"""
    ended = run_python(code, file, DEVICE)
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout.split()[0]) == sum(one.double().sum().item() for one in first.values())
    assert client.df()[0].used_bytes == used
    assert (first["t1"] @ first["t2"]).isfinite().all()  # a kernel that needs aligned memory


def test_a_state_is_copied_in_the_order_of_the_stream(client):
    tensor = torch.zeros(1 << 24, device=DEVICE)
    gshm.torch.save({"a": tensor}, "warm", client=client).wait()  # what is made once: contexts, pinned memory
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        copied_in_order(client, tensor, stream)


def copied_in_order(client, tensor, stream):
    with torch.cuda.stream(stream):
        torch.cuda._sleep(4_000_000_000)  # the work before the copy takes two seconds
        tensor.fill_(1)
        saved = gshm.torch.save({"a": tensor}, "s", client=client)
        tensor.fill_(2)
    assert not saved.sealed, "the call does not wait for the GPU"
    saved.wait()
    assert gshm.torch.load_state("s", client=client)["a"].unique().tolist() == [1]
    stream.synchronize()
    assert tensor.unique().tolist() == [2]


POOL = """
import os, pickle, sys, torch, gshm, gshm.torch
from multiprocessing.reduction import ForkingPickler
pool = gshm.torch.use_pool("kv", slab_bytes=64 << 20)
with pool:
    first = torch.full((1 << 20,), 3.0, device="cuda")
outside = torch.ones(4, device="cuda")
assert gshm.locate(first.data_ptr()).size_bytes >= 4 << 20
try:
    gshm.locate(outside.data_ptr())
    raise SystemExit("memory outside of the pool is not of gshm")
except gshm.Invalid:
    pass
if sys.argv[1] == "seal":
    pool.seal()
    with pool:
        second = torch.full((1 << 20,), 4.0, device="cuda")
    assert gshm.locate(second.data_ptr()).id != gshm.locate(first.data_ptr()).id
try:
    gshm.torch.use_pool("other")
    raise SystemExit("there is one pool for a GPU")
except gshm.Busy:
    pass
torch.cuda.synchronize()
sys.stdout.buffer.write(bytes(ForkingPickler.dumps(first)))
sys.stdout.flush()
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["keep", "seal"])
def test_memory_of_a_pool_outlives_the_process(client, how):
    ended = subprocess.run([sys.executable, "-c", POOL, how], capture_output=True)
    assert ended.returncode == -9, ended.stderr.decode() + ended.stdout[:200].decode("utf-8", "replace")
    tensor = pickle.loads(ended.stdout)
    assert tensor.is_cuda and tensor.unique().tolist() == [3]
    states = {info.state for _, info in client.list("kv", recursive=True)}
    assert states == ({"open"} if how == "keep" else {"open", "sealed"})


def test_the_place_of_safetensors(file):
    import gshm.safetensors
    from gshm.safetensors.torch import load_file

    first, second = load_file(file, DEVICE), load_file(file, torch.device(DEVICE).index)
    first["t0"].zero_()
    assert second["t0"].cpu().numpy().tobytes() == content("t0", 4 << 20)
    gshm.safetensors.shared(True)
    try:
        shared = load_file(file, DEVICE)
        assert gshm.locate(shared["t0"].data_ptr()).size_bytes > 0 and torch.equal(shared["t0"], second["t0"])
    finally:
        gshm.safetensors.shared(False)
