"""Control groups of `up --cgroup`: a directory for each host in the hierarchies (version 1) that the plugins of Slurm use.

The directory of a testbed is locked while its fabric lives. So an unlocked one is a leftover, which the next command removes.
"""

import contextlib
import fcntl
import os
import secrets
import time

from . import channel

MOUNT = "/sys/fs/cgroup"
CONTROLLERS = ("cpuset", "freezer")
"""The last one holds the lock: it is made first and removed last."""
PREFIX = "rlaunch-testbed"
GONE_WITHIN = 10
"""Seconds in which a group is empty after its processes were killed."""


def _path(controller, *parts):
    return "/".join((MOUNT, controller, *parts))


def _mounted():
    """Controllers of version 1 that are mounted where Slurm looks for them."""
    found = set()
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as table:
        for _, where, kind, options, *_ in (line.split() for line in table):
            if kind == "cgroup":
                found |= {each for each in options.split(",") if where == _path(each)}
    return found


def _read(path):
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def _write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _add(controller, parent, name):
    """Makes a directory below another one. A new cpuset has no processors and takes no process: it gets those of its parent."""
    made = _path(controller, *parent, name)
    os.mkdir(made)
    if controller == "cpuset":
        for fact in ("cpuset.cpus", "cpuset.mems"):
            _write(f"{made}/{fact}", _read(f"{_path(controller, *parent)}/{fact}"))


def make(name):
    """The directories of a new testbed, and the lock that says that they are in use: (top, descriptor)."""
    absent = [each for each in CONTROLLERS if each not in _mounted()]
    if absent:
        where = " and ".join(f"{MOUNT}/{each}" for each in absent)
        raise channel.Refused(f"--cgroup needs control groups of version 1, and this machine has none at {where}")
    clear()
    top = f"{PREFIX}:{name}:{secrets.token_hex(4)}"
    try:
        with _alone():
            _add(CONTROLLERS[-1], (), top)
            lock = os.open(_path(CONTROLLERS[-1], top), os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
        for controller in CONTROLLERS[:-1]:
            _add(controller, (), top)
    except OSError as error:
        remove(top)
        raise channel.Refused(f"--cgroup: making a control group at {error.filename or MOUNT} failed: {error.strerror}") from None
    return top, lock


def add_host(top, host):
    """The directories of a host, empty ones also after a power cut: {controller: path}."""
    remove(top, host)
    for controller in CONTROLLERS:
        _add(controller, (top,), host)
    return {controller: _path(controller, top, host) for controller in CONTROLLERS}


def _below(directory):
    """A directory and all below it, the lowest first."""
    return [path for path, _, _ in os.walk(directory, topdown=False)]


def thaw(*parts):
    """Lets frozen processes continue: the kernel kills them only then. Slurm can freeze a group."""
    for path in _below(_path("freezer", *parts)):
        with contextlib.suppress(OSError):  # it went meanwhile
            if _read(f"{path}/freezer.state") != "THAWED":
                _write(f"{path}/freezer.state", "THAWED")


def _try_to_remove(*parts):
    """Whether nothing is left of these directories, once all is removed that has no process."""
    thaw(*parts)
    for controller in CONTROLLERS:
        for path in _below(_path(controller, *parts)):
            with contextlib.suppress(OSError):  # a process is in it, or it went meanwhile
                os.rmdir(path)
    return not any(os.path.exists(_path(controller, *parts)) for controller in CONTROLLERS)


def remove(*parts):
    """Removes the directories of a testbed, or of a host of it, whose processes were killed."""
    end = time.monotonic() + GONE_WITHIN
    while not _try_to_remove(*parts):
        if time.monotonic() >= end:
            raise OSError(f"control groups cannot be removed within {GONE_WITHIN} s, a process is in one: {_path('*', *parts)}")
        time.sleep(0.005)


@contextlib.contextmanager
def _locked(path, wait):
    """Holds the lock of a directory; gives False if another process has it."""
    held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield _lock(held, wait)
    finally:
        os.close(held)


def _lock(held, wait):
    try:
        fcntl.flock(held, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _alone():
    """Between its making and its locking, a directory of a testbed looks like a leftover."""
    return _locked(_path(CONTROLLERS[-1]), True)


def clear(name=None):
    """Removes what ended testbeds with this name have left, or all; directories of others are locked. Whether nothing is left."""
    prefix = f"{PREFIX}:{name}:" if name else f"{PREFIX}:"
    try:
        tops = [each for each in os.listdir(_path(CONTROLLERS[-1])) if each.startswith(prefix)]
    except FileNotFoundError:
        return True
    if not tops:
        return True
    done = True
    with _alone():
        for top in tops:
            with contextlib.suppress(FileNotFoundError), _locked(_path(CONTROLLERS[-1], top), False) as is_left:
                done = (not is_left or _try_to_remove(top)) and done
    return done
