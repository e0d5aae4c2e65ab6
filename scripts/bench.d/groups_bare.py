#!/usr/bin/env python3
"""The floor of the row groups: a controller and its workers over bare unix sockets, with pickle and an epoll, all by hand.

    groups_bare.py call WORKERS SECONDS     µs of an empty call of all workers
    groups_bare.py start WORKERS            ms of as many `python -c 'import pickle'`
    groups_bare.py memcpy BYTES PARTS       s of one copy of so many arrays into memory that was used before; needs NumPy
"""

import mmap
import os
import pickle
import select
import socket
import struct
import subprocess
import sys
import time

LENGTH = struct.Struct("<I")


def received(sock):
    data = b""
    while len(data) < 4:
        part = sock.recv(65536)
        if not part:
            os._exit(0)
        data += part
    (length,) = LENGTH.unpack_from(data)
    while len(data) < 4 + length:
        data += sock.recv(65536)
    return pickle.loads(data[4:])


def send(sock, value):
    data = pickle.dumps(value, protocol=5)
    sock.sendall(LENGTH.pack(len(data)) + data)


class Object:
    def empty(self):
        return None


def serve(sock):
    served = Object()
    while True:
        number, name, kwargs = received(sock)
        send(sock, (number, getattr(served, name)(**kwargs)))


def started(count):
    """Sockets to this many forked workers."""
    sockets = []
    for _ in range(count):
        own_end, worker_end = socket.socketpair()
        if os.fork() == 0:
            # Each worker has a session of its own, like the workers of a job.
            os.setsid()
            for sock in [ours, *sockets]:
                sock.close()
            serve(worker_end)
        worker_end.close()
        sockets.append(ours)
    return sockets


def call(count, seconds):
    sockets = started(count)
    epoll = select.epoll()
    by_fd = {sock.fileno(): sock for sock in sockets}
    for fd in by_fd:
        epoll.register(fd, select.EPOLLIN)
    times = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        data = pickle.dumps((len(times), "empty", {}), protocol=5)
        data = LENGTH.pack(len(data)) + data
        for sock in sockets:
            sock.sendall(data)
        left = count
        while left:
            for fd, _ in epoll.poll():
                received(by_fd[fd])
                left -= 1
        times.append(time.perf_counter() - began)
    times.sort()
    return times[len(times) // 2] * 1e6


def start(count):
    began = time.perf_counter()
    children = [subprocess.Popen([sys.executable, "-c", "import pickle"]) for _ in range(count)]
    for child in children:
        child.wait()
    return (time.perf_counter() - began) * 1e3


def memcpy(size, parts):
    import numpy as np

    fd = os.memfd_create("floor")
    os.ftruncate(fd, size)
    view, length = memoryview(mmap.mmap(fd, size)), size // parts
    arrays = [memoryview(part).cast("B") for part in np.array_split(np.ones(size // 8), parts)]
    times = []
    for _ in range(8):
        began = time.perf_counter()
        for at, data in enumerate(arrays):
            view[at * length : (at + 1) * length] = data
        times.append(time.perf_counter() - began)
    # The first copy makes the pages.
    later = sorted(times[1:])
    return later[len(later) // 2]


def main(words):
    if words[0] == "call":
        print(call(int(words[1]), float(words[2])), flush=True)
    elif words[0] == "start":
        print(start(int(words[1])), flush=True)
    else:
        print(memcpy(int(words[1]), int(words[2])), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
