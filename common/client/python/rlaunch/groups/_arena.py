"""Large values for workers on this host: shared memory that is mapped once and used again.

Most of the cost of a large value is new pages, not the copy. The controller writes values into one memory file, which each worker maps when
it starts. A region is used again when no worker holds it any more.
"""

from __future__ import annotations

import bisect
import mmap
import os
import threading
import weakref

from ._calls import Region

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional, Set, Tuple

LEAST = 1 << 20
"""Bytes from which a buffer lies in shared memory."""

_PAGE = mmap.PAGESIZE


def default_limit() -> int:
    """The default limit of the shared memory in bytes: a quarter of the memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4


class Arena:
    """Controller's end of the shared memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit // _PAGE * _PAGE
        self._lock = threading.Lock()
        self._map: Optional[mmap.mmap] = None
        self._free: List[Tuple[int, int]] = [(0, self._limit)]
        """Begin and end of each run that is free, in order."""
        self._sizes: Dict[int, int] = {}
        self._holders: Dict[int, Set[int]] = {}
        self._fd = -1
        if self._limit:
            self._fd = os.memfd_create("rlaunch-arena")
            weakref.finalize(self, os.close, self._fd)
            os.ftruncate(self._fd, self._limit)

    @property
    def size(self) -> int:
        """The bytes of the memory file; 0: there is no file."""
        return self._limit

    @property
    def path(self) -> str:
        """The path at which a process of this host opens the memory file."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def put(self, data: memoryview, holders: Iterable[int]) -> Optional[Region]:
        """Copies bytes to a region for these connections; ``None``: there is no room."""
        size = -(-data.nbytes // _PAGE) * _PAGE
        with self._lock:
            offset = self._take(size)
            if offset is None:
                return None
            if self._map is None:
                try:
                    self._map = mmap.mmap(self._fd, self._limit)
                except OSError:
                    # This process has a limit (ulimit -v), so values go through sockets.
                    self._free = []
                    return None
            self._holders[offset] = set(holders)
        view = memoryview(self._map)
        view[offset : offset + data.nbytes] = data
        view.release()
        return Region(offset, data.nbytes)

    def _take(self, size: int) -> Optional[int]:
        # The first run that is large enough is taken: pages that were used before come first.
        for at, (begin, end) in enumerate(self._free):
            if end - begin >= size:
                if end - begin == size:
                    del self._free[at]
                else:
                    self._free[at] = (begin + size, end)
                self._sizes[begin] = size
                return begin
        return None

    def release(self, offset: int, holder: int) -> None:
        """Notes that a connection does not need a region any more."""
        with self._lock:
            holders = self._holders.get(offset)
            if holders is not None:
                holders.discard(holder)
                if not holders:
                    self._give_back(offset)

    def forget(self, holder: int) -> None:
        """Releases all regions of a connection that has ended."""
        for offset in list(self._holders):
            self.release(offset, holder)

    def _give_back(self, offset: int) -> None:
        del self._holders[offset]
        begin, end = offset, offset + self._sizes.pop(offset)
        at = bisect.bisect_left(self._free, (begin, end))
        if at < len(self._free) and self._free[at][0] == end:
            end = self._free.pop(at)[1]
        if at and self._free[at - 1][1] == begin:
            at -= 1
            begin = self._free.pop(at)[0]
        self._free.insert(at, (begin, end))

    @property
    def used(self) -> int:
        """Bytes that workers hold."""
        with self._lock:
            return sum(self._sizes.values())
