"""Holds an object while gshmd is upgraded: holder.py GO ANSWER. Both are fifos."""

import sys

import gshm

go, answer = sys.argv[1:]


def say(word):
    with open(answer, "w") as stream:
        stream.write(word)


client = gshm.connect()
with client.create("held", shape=(4096,), dtype="uint8", device="host") as held:
    view = held.memoryview()
    view[:2048] = b"a" * 2048
    say("ready")
    with open(go) as stream:
        stream.read()
    view[2048:] = b"b" * 2048
    del view
again = client.open("held").tobytes()
assert again == b"a" * 2048 + b"b" * 2048, again[:8]
say("done")
