"""The controller's shared memory, as a worker maps it."""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable

    from ._calls import Region

_PROT_READ, _PROT_WRITE, _MAP_PRIVATE, _MAP_NORESERVE, _MADV_DONTNEED = 1, 2, 2, 0x4000, 4
"""Constants of the module mmap, whose import would delay a start."""

_MAP_FAILED = ctypes.c_void_p(-1).value

_PAGE = os.sysconf("SC_PAGE_SIZE")

_UNCHANGED = bytes(flags for flags in range(256) if flags & 0x20 or not flags & 0xC0)
"""Highest bytes of /proc/self/pagemap for pages of the file (bit 61), and for those neither in memory (63) nor in swap (62)."""


class Mapped:
    """The memory file of a controller. A page that this process writes to becomes its own copy."""

    def __init__(self, path: str, size: int) -> None:
        self._libc = libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            address = libc.mmap(None, size, _PROT_READ | _PROT_WRITE, _MAP_PRIVATE | _MAP_NORESERVE, fd, 0)
        finally:
            os.close(fd)
        if address in (None, _MAP_FAILED):
            raise OSError(ctypes.get_errno(), f"cannot map {path}")
        # The file stays mapped as long as the process runs, because arrays may lie in it.
        self._address, self._size = address, size

    def region(self, region: Region, when_unused: Callable[[int], Any]) -> memoryview:
        """The bytes of a region; a call follows when nothing in this process refers to them any more."""
        if region.offset + region.len > self._size:
            raise ValueError("a region outside of the shared memory")
        import weakref

        memory = (ctypes.c_char * region.len).from_address(self._address + region.offset)
        weakref.finalize(memory, self._give_back, region, when_unused).atexit = False
        return memoryview(memory).cast("B")

    def _give_back(self, region: Region, when_unused: Callable[[int], Any]) -> None:
        # The next value is visible only in pages of the file. Mapping all pages anew would take longer than this check.
        address, pages = self._address + region.offset, -(-region.len // _PAGE)
        try:
            with open("/proc/self/pagemap", "rb", buffering=0) as file:
                file.seek(address // _PAGE * 8)
                flags = file.read(pages * 8)[7::8]
            is_changed = len(flags) < pages or bool(flags.translate(None, _UNCHANGED))
        except OSError:
            is_changed = True
        if is_changed:
            self._libc.madvise(address, pages * _PAGE, _MADV_DONTNEED)
        when_unused(region.offset)
