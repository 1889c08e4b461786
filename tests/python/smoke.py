"""A little of everything, for interpreters that have the standard library alone: smoke.py RUNTIME_DIR FOLDER"""
import asyncio
import pathlib
import pickle
import sys

import gshm

client = gshm.connect(sys.argv[1])
with client.create("a", (2, 3), "int32") as made:
    made.fill(1)
seen = client.open("a", wait=60)
view = seen.memoryview()
assert view.tolist() == [[0x01010101] * 3] * 2 and view.readonly
if sys.version_info >= (3, 12):
    assert memoryview(seen).tolist() == view.tolist()
assert pickle.loads(pickle.dumps(seen)).tobytes() == seen.tobytes() == seen.copy().tobytes()
capsule = seen.__dlpack__(max_version=(1, 0))
del capsule
file = pathlib.Path(sys.argv[2]) / "file"
file.write_bytes(b"x" * 8192)
assert client.put(file, "f").bytes == 8192


async def main() -> None:
    watch = client.watch("jobs/")
    client.create("jobs/1", 4).seal()
    async for event in watch:
        if event.event == "sealed":
            break
    watch.close()
    async with client.async_ring() as ring:
        part = client.create("part", 8192)
        assert await ring.read(ring.add_file(file), 0, part) == 8192 and part.read(0, 1) == b"x"


asyncio.run(main())
pool = client.pool("host", slab_bytes=1 << 20)
block = pool.empty(10)
pool.close()
assert len(block.tobytes()) == 10
assert client.attributes("a")["shape"] == b"2,3"
print("ok")
