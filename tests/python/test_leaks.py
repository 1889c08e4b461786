"""Nothing is left behind: descriptors, leases, memory, references."""
import gc
import os
import sys

import pytest
from conftest import leases
from consumer import Taken
from files import make

import gshm

CYCLES = 10_000


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_kib() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4


@pytest.fixture
def sealed(client, device):
    with client.create("a", (4, 4), "int32", device) as made:
        made.fill(1)
    return "a"


def test_ten_thousand_opens(client, sealed):
    held = client.open(sealed)  # the mapping stays, as in a program that uses the object
    for _ in range(200):
        client.open(sealed, shape=(4, 4), dtype="int32").close()
    fds, memory = descriptors(), resident_kib()
    for cycle in range(CYCLES):
        seen = client.open(sealed, shape=(4, 4), dtype="int32")
        capsule = seen.__dlpack__(max_version=(1, 0) if cycle % 2 else None)
        if cycle % 3:
            Taken(capsule).delete()
        del capsule
        if cycle % 2:
            seen.close()
    del seen
    assert descriptors() == fds and leases(client, sealed) == 1
    assert resident_kib() < memory + 4096
    held.close()
    assert leases(client, sealed) == 0


def test_objects_are_freed_without_the_collector(client, sealed, device):
    gc.collect()
    gc.disable()
    try:
        for use in (
            lambda: client.open(sealed),
            lambda: client.open(sealed).view("uint8"),
            lambda: client.open(sealed).copy(),
            lambda: client.open(sealed).fence(),
            lambda: client.open(sealed).mirror(),
            lambda: client.open(sealed).__dlpack__(),
        ):
            made = use()
            assert sys.getrefcount(made) == 2
            del made
            assert leases(client, sealed) == 0
    finally:
        gc.enable()


def test_loads(client, device, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(make({f"t{n}": ("F32", (2, 2)) for n in range(20)}))
    held = gshm.load(tmp_path, device, client=client, name="m")
    for _ in range(20):
        gshm.load(tmp_path, device, client=client, name="m")
    fds, memory = descriptors(), resident_kib()
    name = held.parts[0].object.name
    for cycle in range(1000):
        model = gshm.load(tmp_path, device, client=client, name="m")
        assert model.read_bytes == 0
        if cycle % 3 == 0:
            Taken(model["t7"].__dlpack__()).delete()
    del model
    assert descriptors() == fds and leases(client, name) == 1 and resident_kib() < memory + 4096
    del held
    assert leases(client, name) == 0


def test_tensors_of_torch(client, device, place, tmp_path):
    import torch

    import gshm.torch

    (tmp_path / "a.safetensors").write_bytes(make({f"t{n}": ("F32", (2, 2)) for n in range(20)}))
    module = torch.nn.Linear(8, 8).to(place)
    gshm.torch.share_module(module, "module", client=client)
    held = gshm.torch.load(tmp_path, place, client=client, name="m", progress=False)
    name = held.parts[0].object.name
    del held.parts  # as a program that keeps the tensors alone

    def cycle(number):
        tensors = gshm.torch.load(tmp_path, place, client=client, name="m", progress=False)
        one = tensors.pop("t3")
        assert sys.getrefcount(one) == 2  # here, and as the argument
        kept = one[0]
        del tensors, one
        assert leases(client, name) == 2 and kept.shape == (2,)
        gshm.torch.attach_module(torch.nn.Linear(8, 8).to(place), "module", client=client)
        state = {"w": torch.full((4,), float(number), device=place)}
        gshm.torch.save(state, "state", client=client).wait()
        assert gshm.torch.load_state("state", client=client)["w"][0] == number

    for number in range(20):
        cycle(number)
    gc.collect()
    fds, memory, threads = descriptors(), resident_kib(), len(os.listdir("/proc/self/task"))
    for number in range(300):
        cycle(number)
    gc.collect()
    assert descriptors() == fds and resident_kib() < memory + 4096 and len(os.listdir("/proc/self/task")) <= threads
    assert leases(client, name) == 1 and leases(client, "module") == 1 and leases(client, "state") == 0
    del held, module
    assert leases(client, name) == 0 and leases(client, "module") == 0


def test_connections_watches_rings_and_pools(client, gshmd, sealed, device, tmp_path):
    (tmp_path / "file").write_bytes(bytes(64))

    def cycle():
        with gshm.connect(gshmd.dir) as other:
            seen = other.open(sealed)
            with other.watch(), other.ring() as ring, other.pool(device, slab_bytes=1 << 20) as pool, seen.fence():
                block = pool.empty(100)
                ring.add_file(tmp_path / "file")
                del block
            other.put(tmp_path / "file", "put", replace=True)
        other.watch  # not closed by name, but by its last reference
        del other

    for _ in range(3):
        cycle()
    gc.collect()
    fds, threads = descriptors(), len(os.listdir("/proc/self/task"))
    for _ in range(20):
        cycle()
    gc.collect()
    assert descriptors() <= fds and len(os.listdir("/proc/self/task")) <= threads
    assert leases(client, sealed) == 0
