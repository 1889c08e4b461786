"""Every call that asks the daemon, for tests that take the daemon away. A case prepares a call, and returns it."""
import asyncio
import os
import pathlib
import pickle
import types

from files import make

import gshm

BYTES = bytes(range(64))


def environment(client, device, folder, number):
    """What a case needs: names of its own, and objects that exist."""
    one = types.SimpleNamespace(client=client, device=device, folder=pathlib.Path(folder) / str(number))
    one.folder.mkdir()
    one.file = one.folder / "file"
    one.file.write_bytes(BYTES)
    one.model = one.folder / "m.safetensors"
    one.model.write_bytes(make({"a": ("F32", (4, 4)), "b": ("U8", (3,))}))
    one.new = f"new{number}"
    one.there = f"there{number}"
    client.create(one.there, 64, device=device, keep=True).close()
    one.made = client.create(f"made{number}", 64, device=device, keep=True)
    one.seen = client.open("kept")
    return one


def make_kept(client, device):
    with client.create("kept", 64, device=device) as made:
        made.write(BYTES)


def _ring(e):
    with e.client.ring(4) as ring:
        ring.write(ring.add_file(e.folder / "ring", write=True), 0, e.seen)
        ring.submit()
        (done,) = ring.wait()
        assert done.error is None and done.result == 64


async def _async_ring(e):
    async with e.client.async_ring(4) as ring:
        assert await ring.write(ring.add_file(e.folder / "async", write=True), 0, e.seen) == 64


def _pool(e):
    with e.client.pool(e.device, slab_bytes=1 << 20) as pool:
        block = pool.empty(64)
        assert gshm.locate(block.ptr).size_bytes >= 64


def _fence(e):
    with e.made.fence(write=True) as fence:
        fence.publish()


def _mirror(e):
    with e.seen.mirror() as mirror:
        assert bytes(mirror.memoryview()) == BYTES


def _watch(e):
    with e.client.watch("kept", existing=True) as watch:
        assert watch.next(60).event in ("existing", "overflow")


def _attributes(e):
    found = e.client.attributes(e.there)
    found["a"] = 1
    found.write({"b": 2, "c": 3})
    assert found["a"] == b"1" and len(found) >= 3
    del found["a"]


def _link(e):
    e.client.symlink(e.there, e.new)
    assert e.client.read_link(e.new) == e.there


def _bytes(e):
    e.made.write(BYTES)
    e.made.fill(7, 0, 8)
    assert e.made.read(0, 9) == b"\7" * 8 + BYTES[8:9]


def _files(e):
    e.made.read_file(e.file)
    e.made.write_file(e.folder / "back")
    assert (e.folder / "back").read_bytes() == BYTES


def _load(e):
    assert gshm.load(e.model, e.device, client=e.client, name=e.new)["b"].shape == (3,)


def _load_some(e):
    found = gshm.load(e.model, e.device, client=e.client, slice={"a": (1, 1, 3)}, filter=lambda name: name == "a")
    assert found["a"].shape == (4, 2)


def _prepare_unload(e):
    _load(e)
    return lambda: gshm.unload(e.new, client=e.client)


def _prepare_publish(e):
    hidden = e.client.create(e.new, 64, device=e.device, unnamed=True)
    return hidden.publish


def _prepare_replace(e):
    hidden = e.client.create(e.there, 64, device=e.device, replace=True)
    return hidden.replace


def _prepare_reference(e):
    reference = pickle.dumps(e.seen)
    return lambda: pickle.loads(reference)


def _reserve(e):
    try:
        e.client.reserve(e.device, bytes=1 << 20)
    except gshm.Unsupported:  # for GPUs only
        assert e.device == "host"


def _prepare_unshare(e):
    e.client.share(e.there, users=65533)
    return lambda: e.client.unshare(e.there)


def _without_tier(call):
    try:
        call("kept")
    except gshm.Unsupported:  # gshmd has no tier
        pass


def _prepare_unpin(e):
    e.client.pin("kept")
    return lambda: e.client.unpin("kept")


def _prepare_export(e):
    return lambda: os.close(e.seen.export_fd().value)


def _all(results):
    """Of a batch, which raises nothing for an element."""
    for one in results:
        if isinstance(one, BaseException):
            raise one


def _now(call):
    """A case that prepares nothing."""
    return lambda e: lambda: call(e)


CASES = {
    "ping": _now(lambda e: e.client.ping()),
    "daemon": _now(lambda e: e.client.daemon()),
    "devices": _now(lambda e: e.client.devices()),
    "mounts": _now(lambda e: e.client.mounts()),
    "reload": _now(lambda e: e.client.reload()),
    "create": _now(lambda e: e.client.create(e.new, 64, device=e.device, keep=True)),
    "create_many": _now(lambda e: _all(e.client.create_many([{"name": e.new, "shape": 8, "device": e.device, "keep": True}]))),
    "open": _now(lambda e: e.client.open("kept", wait=60)),
    "open_id": _now(lambda e: e.client.open_id(e.seen.id)),
    "open_many": _now(lambda e: _all(e.client.open_many(["kept"]))),
    "stat": _now(lambda e: e.client.stat("kept")),
    "stat_many": _now(lambda e: _all(e.client.stat_many(["kept"]))),
    "exists": _now(lambda e: e.client.exists("kept")),
    "list": _now(lambda e: e.client.list(recursive=True)),
    "holders": _now(lambda e: e.client.holders("kept")),
    "unlinked": _now(lambda e: e.client.unlinked()),
    "unlink": _now(lambda e: e.client.unlink(e.there)),
    "unlink_many": _now(lambda e: _all(e.client.unlink_many([e.there]))),
    "rename": _now(lambda e: e.client.rename(e.there, e.new)),
    "link": _now(lambda e: e.client.link(e.there, e.new)),
    "symlink": _now(_link),
    "make_directory": _now(lambda e: e.client.make_directory(e.new)),
    "change": _now(lambda e: e.client.change(e.there, mode=0o640)),
    "move": _now(lambda e: e.client.move(e.there, "host")),
    "seal": _now(lambda e: e.client.seal(e.there)),
    "attributes": _now(_attributes),
    "share": _now(lambda e: e.client.share(e.there, users=65533)),
    "unshare": _prepare_unshare,
    "acl": _now(lambda e: e.client.acl(e.there)),
    "set_acl": _now(lambda e: e.client.set_acl(e.there, e.client.acl(e.there))),
    "set_ttl": _now(lambda e: e.client.set_ttl("kept", 3600)),
    "pin": _now(lambda e: e.client.pin("kept")),
    "unpin": _prepare_unpin,
    "tiers": _now(lambda e: e.client.tiers()),
    "promote": _now(lambda e: _without_tier(e.client.promote)),
    "demote": _now(lambda e: _without_tier(e.client.demote)),
    "limit": _now(lambda e: e.client.limit(user=65533, device="host", bytes=1 << 20)),
    "limits": _now(lambda e: e.client.limits()),
    "reserve": _now(_reserve),
    "wait": _now(lambda e: e.client.wait("kept", timeout=60)),
    "watch": _now(_watch),
    "put": _now(lambda e: e.client.put(e.file, e.new, device=e.device)),
    "get": _now(lambda e: e.client.get("kept", e.folder / "got")),
    "ring": _now(_ring),
    "async_ring": _now(lambda e: asyncio.run(_async_ring(e))),
    "pool": _now(_pool),
    "Object.stat": _now(lambda e: e.seen.stat()),
    "Object.seal": _now(lambda e: e.made.seal()),
    "Object.publish": _prepare_publish,
    "Object.replace": _prepare_replace,
    "Object.write": _now(_bytes),
    "Object.read": _now(lambda e: e.seen.read()),
    "Object.copy": _now(lambda e: e.seen.copy()),
    "Object.fence": _now(_fence),
    "Object.mirror": _now(_mirror),
    "Object.read_file": _now(_files),
    "Object.export_fd": _prepare_export,
    "a reference": _prepare_reference,
    "connect": _now(lambda e: gshm.connect(e.client.dir, timeout=60).close()),
    "load": _now(_load),
    "load a part": _now(_load_some),
    "unload": _prepare_unload,
}


# ---- with torch ----
def _module(e):
    import torch

    return torch.nn.Linear(4, 4).to(e.place)


def _share(e):
    gshm.torch.share_module(_module(e), e.new, client=e.client)


def _prepare_attach(e):
    _share(e)
    module = _module(e)
    return lambda: gshm.torch.attach_module(module, e.new, client=e.client)


def _state(e):
    import torch

    return {"w": torch.arange(16.0, device=e.place), "step": 3}


def _save(e):
    gshm.torch.save(_state(e), e.new, path=e.folder / "state.safetensors", client=e.client).wait()


def _prepare_store(e):
    gshm.torch.save(_state(e), e.new, client=e.client).wait()
    return lambda: gshm.torch.store(e.new, e.folder / "state.safetensors", client=e.client)


def _prepare_load_state(e):
    _save(e)

    def load():
        assert gshm.torch.load_state(e.new, client=e.client)["w"].sum() == 120

    return load


def _load_tensors(e):
    assert gshm.torch.load(e.model, e.place, client=e.client, progress=False)["a"].shape == (4, 4)


TORCH_CASES = {
    "torch.load": _now(_load_tensors),
    "torch.share_module": _now(_share),
    "torch.attach_module": _prepare_attach,
    "torch.save": _now(_save),
    "torch.store": _prepare_store,
    "torch.load_state": _prepare_load_state,
}
# Tested elsewhere: they need a mount, or end the daemon.
OTHERS = {"mount", "unmount", "open_path", "shutdown"}
# The same as a case, or nothing of the daemon's.
SAME = {"df", "read_link", "instance", "dir", "close"}
