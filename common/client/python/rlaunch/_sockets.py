"""Sockets of this process that belong to process groups.

A library like gloo opens its sockets by itself. /proc shows them by comparison before and after a group is made. A descriptor is noted with
its inode, because another file soon has the same descriptor. Pairs that are connected later are recognised by the port at which the group
listens. Only connections are shut down, and no listener: a thread that waits at a listener cannot handle the error.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from typing import Callable, Dict, Iterator, List, Optional, Set

_TCP = (socket.AF_INET, socket.AF_INET6)


def open_sockets() -> Dict[int, int]:
    """Descriptors of all sockets of this process, and their inodes."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # The descriptor of the listing itself, or one that was closed meanwhile.
        if link.startswith("socket:["):
            found[int(name)] = int(link[8:-1])
    return found


def _with(descriptor: int, inode: int, ask: Callable[[socket.socket], Optional[int]]) -> Optional[int]:
    """Calls a function with a copy of the socket, if the descriptor is still the same socket. The copy cannot become another file."""
    try:
        copy = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return None
    with copy:
        try:
            is_same = os.fstat(copy.fileno()).st_ino == inode
            return ask(copy) if is_same and copy.family in _TCP and copy.type == socket.SOCK_STREAM else None
        except OSError:
            return None


def _listening_port(one: socket.socket) -> Optional[int]:
    if not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return None
    return one.getsockname()[1]


def _local_port(one: socket.socket) -> Optional[int]:
    if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return None
    return one.getsockname()[1]


def _is_silent(one: socket.socket) -> Optional[int]:
    """1 for a connection that has never carried a byte."""
    if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return None
    # struct tcp_info of linux/tcp.h; data_segs_in and data_segs_out are there since Linux 4.6.
    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
    return 1 if len(info) == 160 and struct.unpack_from("=II", info, 152) == (0, 0) else None


def _shut_down(one: socket.socket) -> Optional[int]:
    if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return None
    one.shutdown(socket.SHUT_RDWR)
    return 1


class Groups:
    """The sockets of all groups of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: Dict[int, int] = {}
        self._left: Dict[int, int] = {}
        """Sockets that are never shut down."""
        self._ports: Set[int] = set()
        self._being_made: List[Dict[int, int]] = []
        self.add: Optional[Callable[[int], None]] = None
        """Called with each connection, so that the library can shut it down without Python."""

    def making(self, is_store: bool = False) -> Iterator[None]:
        """Context in which a group, or its store, is made."""
        before = open_sockets()
        with self._lock:
            self._being_made.append(before)
        try:
            yield
        finally:
            if is_store:
                self._leave_silent_ones(before)
            self._learn(before)
            with self._lock:
                self._being_made[:] = [other for other in self._being_made if other is not before]

    def _leave_silent_ones(self, before: Dict[int, int]) -> None:
        # torch before 2.1 has a second connection for each store, on which a thread waits without ever receiving a byte. After a shutdown
        # that thread would poll without a pause, and occupy a processor, as long as the store exists.
        for descriptor, inode in open_sockets().items():
            if before.get(descriptor) != inode and _with(descriptor, inode, _is_silent):
                self._left[descriptor] = inode

    def _learn(self, before: Dict[int, int]) -> None:
        for descriptor, inode in open_sockets().items():
            if inode in (before.get(descriptor), self._known.get(descriptor), self._left.get(descriptor)):
                continue
            port = _with(descriptor, inode, _listening_port)
            if port is not None:
                self._ports.add(port)
            elif _with(descriptor, inode, _local_port) is not None:
                self._know(descriptor, inode)

    def _know(self, descriptor: int, inode: int) -> None:
        self._known[descriptor] = inode
        if self.add is not None:
            self.add(descriptor)

    def _learn_late_ones(self) -> None:
        with self._lock:
            being_made = list(self._being_made)
        for before in being_made:
            self._learn(before)
        if self._ports:
            for descriptor, inode in open_sockets().items():
                if self._known.get(descriptor) != inode and _with(descriptor, inode, _local_port) in self._ports:
                    self._know(descriptor, inode)

    def shut_down(self) -> int:
        """Shuts all connections down, so that operations on them fail. Returns their number."""
        self._learn_late_ones()
        return sum(_with(descriptor, inode, _shut_down) or 0 for descriptor, inode in list(self._known.items()))

    def forget(self) -> None:
        """Forgets all sockets after the groups were destroyed."""
        self._known.clear()
        self._left.clear()
        self._ports.clear()
