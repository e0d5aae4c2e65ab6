"""The system calls that Python has no name for (or only a new Python has), with errors that say what was tried."""

import contextlib
import ctypes
import os
import select
import signal

NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
HOST_SPACES = NEWNS | NEWNET | NEWUTS | NEWIPC
"""The namespaces that a process can enter by itself; a PID namespace is entered by its next child."""

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags):
    """New namespaces for this process (a PID namespace: for its children)."""
    _check(_libc.unshare(flags), f"making namespaces ({flags:#x})")


def setns(fd, flags):
    """Enters namespaces: those of a process, if `fd` is its pidfd."""
    _check(_libc.setns(fd, flags), f"entering namespaces ({flags:#x})")


def mount(source, target, kind=None, flags=0, data=None):
    """mount(2)."""
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, data)]
    _check(_libc.mount(*words[:3], ctypes.c_ulong(flags), words[3]), f"mounting {kind or source} at {target}")


def tmpfs(target, mode):
    """An empty file system in memory."""
    os.makedirs(target, exist_ok=True)
    mount("tmpfs", target, "tmpfs", MS_NOSUID, f"mode={mode:o}")


def bind(fd, target):
    """Shows what an O_PATH descriptor stands for at `target`, whatever has covered its path meanwhile."""
    mount(f"/proc/self/fd/{fd}", target, flags=MS_BIND | MS_REC)


def overlay(target, lowers, upper, work):
    """`lowers` at `target`; what is written goes to `upper`."""
    for path in (upper, work):
        os.makedirs(path, exist_ok=True)
    mount("overlay", target, "overlay", data=f"lowerdir={':'.join(lowers)},upperdir={upper},workdir={work}")


def hide_below(path):
    """Makes a folder of an overlay's layer hide the lower layers' folder of that name, not join it."""
    os.setxattr(path, "trusted.overlay.opaque", b"y")


def path_fd(path):
    """A descriptor that stands for a path."""
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def name_me(name):
    """The name in `ps` (the kernel keeps 15 bytes)."""
    _check(_libc.prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0), "naming a process")


class Bond:
    """Bond of a child to its parent: the child is killed when the parent dies, however early."""

    def __init__(self):
        self._child_end, self._parent_end = os.pipe()

    def keep(self):
        """Asks for the kill in the child. A change of user cancels the request, so the call comes after that."""
        os.close(self._parent_end)
        _check(_libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "asking for a parent-death signal")
        # A parent of another PID namespace has no pid here. Only its end of the pipe shows whether it lives.
        if select.select([self._child_end], [], [], 0)[0]:
            os._exit(1)
        os.close(self._child_end)

    def watch(self):
        """The child's side, for a child that has work left when the parent dies: a descriptor that is ready then."""
        os.close(self._parent_end)
        return self._child_end

    def made(self):
        """The parent's side, after the fork. Its other end closes when it dies."""
        os.close(self._child_end)


def close_all_but(keep):
    """Closes every descriptor above 2 that is not in `keep`: what a fork inherits would outlive its owner."""
    for fd in sorted(int(name) for name in os.listdir("/proc/self/fd")):
        if fd > 2 and fd not in keep:
            with contextlib.suppress(OSError):
                os.close(fd)
