"""The controller's shared memory, as a worker maps it."""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable

    from ._calls import Region

_PROT_READ, _MAP_SHARED = 1, 1
"""As the module mmap has them, whose import a start would wait for."""

_MAP_FAILED = ctypes.c_void_p(-1).value


class Mapped:
    """The memory file of a controller: read-only."""

    def __init__(self, path: str, size: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            address = libc.mmap(None, size, _PROT_READ, _MAP_SHARED, fd, 0)
        finally:
            os.close(fd)
        if address in (None, _MAP_FAILED):
            raise OSError(ctypes.get_errno(), f"cannot map {path}")
        # It stays mapped as long as the process runs: arrays may lie in it.
        self._address, self._size = address, size

    def region(self, region: Region, when_unused: Callable[[int], Any]) -> memoryview:
        """The bytes of a region; a call follows when nothing in this process refers to them any more."""
        if region.offset + region.len > self._size:
            raise ValueError("a region outside of the shared memory")
        import weakref

        memory = (ctypes.c_char * region.len).from_address(self._address + region.offset)
        weakref.finalize(memory, when_unused, region.offset).atexit = False
        return memoryview(memory).toreadonly().cast("B")
