"""A slow, narrow or lossy cable: frames pass through a process between two TAP devices, which keeps them for a while.

The kernel's own way (netem) is missing from many kernels; this one needs /dev/net/tun only. Frames pass with the kernel's
notes on checksums and segments, so that it need not finish either, and 64 KiB pass at once."""

import collections
import contextlib
import dataclasses
import fcntl
import json
import os
import random
import select
import signal
import socket
import struct
import time

from . import linux, wires

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x2, 0x1000, 0x4000
OFFLOADS = 0x1 | 0x2 | 0x4
"""Checksums, and segments of TCP over IPv4 and IPv6, may be left undone."""
FRAME = 70_000
QUEUE = 64 << 20
SHORT_QUEUE = 1 << 20
"""A narrow cable has a router's queue in front of it, not a sea."""


@dataclasses.dataclass
class Way:
    """One direction of a cable."""

    delay: float = 0.0
    loss: float = 0.0
    rate: float = 0.0

    @property
    def is_plain(self):
        """Whether it does nothing to a frame."""
        return not (self.delay or self.loss or self.rate)


class _Lane:
    """Frames on their way in one direction."""

    def __init__(self, source, sink):
        self.source, self.sink = source, sink
        self.way = Way()
        self.frames = collections.deque()
        self.bytes = 0
        self.free_at = 0.0

    def take(self, now):
        """Reads what is there."""
        for _ in range(64):
            try:
                frame = os.read(self.source, FRAME)
            except BlockingIOError:
                return
            limit = SHORT_QUEUE if self.way.rate else QUEUE
            if self.bytes + len(frame) > limit or random.random() < self.way.loss:
                continue
            due = now
            if self.way.rate:
                self.free_at = due = max(now, self.free_at) + len(frame) / self.way.rate
            self.frames.append((due + self.way.delay, frame))
            self.bytes += len(frame)

    def give(self, now):
        """Writes what is due; returns when the next will be."""
        while self.frames and self.frames[0][0] <= now:
            frame = self.frames.popleft()[1]
            self.bytes -= len(frame)
            with contextlib.suppress(OSError):  # the other end is down: so is the frame
                os.write(self.sink, frame)
        return self.frames[0][0] if self.frames else None


def _tap(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(fd, TUNSETOFFLOAD, OFFLOADS)
    return fd


def _pump(inner, outer, orders):
    to_host, from_host = _Lane(outer, inner), _Lane(inner, outer)
    lanes = (to_host, from_host)
    while True:
        due = [at for at in (lane.give(time.monotonic()) for lane in lanes) if at is not None]
        wait = max(0.0, min(due) - time.monotonic()) if due else None
        ready = select.select([inner, outer, orders], [], [], wait)[0]
        if orders in ready:
            text = orders.recv(4096)
            if not text:
                return
            words = json.loads(text)
            to_host.way, from_host.way = Way(**words[0]), Way(**words[1])
            orders.send(b".")
        now = time.monotonic()
        for lane in lanes:
            if lane.source in ready:
                lane.take(now)


class Relay:
    """The fabric's handle on the relay of one host."""

    def __init__(self, host):
        self.host = host
        self.to_host, self.from_host = Way(), Way()
        self.bridge = f"side-{host.name}"
        self.outer = f"slow-{host.name}"
        inner = f"tap-{host.name}"
        self._orders, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds = [_tap(inner), _tap(self.outer)]
        wires.make_bridge(self.bridge)
        wires.ip(f"link set {inner} master {self.bridge} up", f"link set {self.outer} master {wires.BRIDGE} up")
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                linux.name_me(f"tb-relay:{host.name}")
                linux.close_all_but((*fds, child_end.fileno()))
                _pump(*fds, child_end)
            finally:
                os._exit(0)
        child_end.close()
        for fd in fds:
            os.close(fd)

    def order(self, to_host, from_host):
        """Changes the cable; frames that are under way keep their times."""
        self.to_host, self.from_host = to_host, from_host
        self._orders.send(json.dumps([dataclasses.asdict(to_host), dataclasses.asdict(from_host)]).encode())
        self._orders.recv(1)

    def end(self):
        """The process, its devices and its bridge."""
        self._orders.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        wires.ip(f"link del {self.bridge}")
