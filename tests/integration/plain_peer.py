"""One end of the plain wire of producer and consumer, without gshm: plain_peer.py producer|consumer SOCKET."""

import array
import mmap
import os
import socket
import struct
import sys

COUNT = 262144
ALIGNED = 2 << 20


def be_producer(path):
    fd = os.memfd_create("numbers")
    os.ftruncate(fd, ALIGNED)
    os.pwrite(fd, array.array("I", range(COUNT)).tobytes(), 0)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(1)
    print("Waiting for consumer connection...", flush=True)
    peer, _ = listener.accept()
    socket.send_fds(peer, [b"X"], [fd])
    peer.sendall(struct.pack("=Q", ALIGNED))
    return 0 if peer.recv(1) == b"A" else 1


def be_consumer(path):
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.connect(path)
    first, fds, _, _ = socket.recv_fds(peer, 1, 1)
    size = struct.unpack("=Q", peer.recv(8, socket.MSG_WAITALL))[0]
    memory = mmap.mmap(fds[0], size, prot=mmap.PROT_READ)
    if first != b"X" or memory[: COUNT * 4] != array.array("I", range(COUNT)).tobytes():
        return 1
    peer.sendall(b"A")
    return 0


sys.exit({"producer": be_producer, "consumer": be_consumer}[sys.argv[1]](sys.argv[2]))
