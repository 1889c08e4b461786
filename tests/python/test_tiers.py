"""Tiers: demote, promote and opening an object where it is."""
from __future__ import annotations

import pathlib
import tempfile
from typing import Iterator

import pytest
from conftest import Gshmd

import gshm

DATA = bytes(range(256)) * 4096


@pytest.fixture
def tiered(device: str) -> Iterator[gshm.Client]:
    """A client of a gshmd with the tiers that objects of this device can leave for."""
    with tempfile.TemporaryDirectory(prefix="gshm-python.") as folder:
        tiers = ["--tier", f"{folder}/tier:64M"]
        if device != "host":
            tiers += ["--tier", "host:64M"]
        daemon = Gshmd(pathlib.Path(folder) / "run", tiers)
        daemon.start()
        try:
            with gshm.connect(daemon.dir, timeout=30) as made:
                yield made
        finally:
            daemon.stop()


@pytest.fixture
def demoted(tiered: gshm.Client, device: str) -> str:
    with tiered.create("a", len(DATA), device=device, evictable=True) as made:
        made.write(DATA)
    made.close()
    tiered.demote("a")
    return "a"


def test_an_object_goes_to_a_tier_and_returns(tiered, demoted, device):
    first = "disk" if device == "host" else "host"
    assert tiered.stat(demoted).tier == first and tiered.stat(demoted).device == device
    assert ["disk" if one.name.startswith("/") else one.name for one in tiered.tiers()][0] == first
    tiered.promote(demoted)
    assert not tiered.stat(demoted).tier
    tiered.demote(demoted)
    with tiered.open(demoted) as seen:
        assert seen.device == device and not tiered.stat(demoted).tier
        assert seen.read() == DATA
        with pytest.raises(gshm.Busy):
            tiered.demote(demoted)


def test_any_device_opens_it_in_host_memory(tiered, demoted, device):
    for seen in (
        tiered.open(demoted, any_device=True),
        tiered.open(demoted, any_device=True, shape=(256, 4096)),
        tiered.open_id(tiered.stat(demoted).id, any_device=True),
        *tiered.open_many([demoted], any_device=True),
    ):
        with seen:
            assert seen.device == "host" and seen.__dlpack_device__() == (1, 0)
            assert seen.memoryview().tobytes() == DATA == seen.read()
    # In a folder it has no memory: it returns to its device.
    assert tiered.stat(demoted).tier == ("" if device == "host" else "host")


def test_without_a_tier_any_device_changes_nothing(client, device):
    with client.create("a", 16, device=device) as made:
        made.fill(3)
    with client.open("a", any_device=True) as seen:
        assert seen.device == device and seen.read() == bytes([3]) * 16
