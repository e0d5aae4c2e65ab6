"""How a command reaches its testbed: an abstract unix socket. The name is free when, and only when, the testbed is gone."""

import json
import os
import socket
import struct


class Refused(Exception):
    """The testbed (or the machine) cannot do what was asked; the text says why."""


def _address(name):
    return f"\0rlaunch-testbed/{name}"


def claim(name):
    """Takes the name; the fabric listens later, so that the kernel notes *its* pid as the one who answers."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.bind(_address(name))
    except OSError:
        raise Refused(f"the testbed {name!r} is up already: `testbed down` ends it, TESTBED_NAME names another") from None
    return listener


def connect(name):
    """A line to a testbed; its other end, as the kernel tells it, is the fabric."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    line.settimeout(120)
    try:
        line.connect(_address(name))
    except OSError as error:
        raise Refused(f"the testbed {name!r} is not up ({error.strerror}): `testbed up N` makes one") from None
    return line


def peer(line):
    """(pid, uid) of the other end, as this side sees them."""
    pid, uid, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def fabric_pidfd(name):
    """A pidfd of the fabric, the process that all of the testbed hangs on."""
    with connect(name) as line:
        pid, _ = peer(line)
        try:
            fd = os.pidfd_open(pid)
        except OSError as error:
            raise Refused(f"the testbed {name!r} is not to be seen from here: {error.strerror}") from None
    try:
        # The name still answers to that pid, so that pid was the fabric's when it was opened.
        with connect(name) as line:
            if peer(line)[0] == pid:
                return fd
    except Refused:
        os.close(fd)
        raise
    os.close(fd)
    raise Refused(f"the testbed {name!r} changed hands: try again")


def _read_line(line):
    text = bytearray()
    fds = []
    while not text.endswith(b"\n"):
        part, more, _, _ = socket.recv_fds(line, 65536, 1)
        fds += more
        if not part:
            break
        text += part
    return bytes(text), fds


def ask(name, /, **request):
    """One question, one answer, and at most one descriptor that comes with it."""
    with connect(name) as line:
        line.sendall(json.dumps(request).encode() + b"\n")
        try:
            text, fds = _read_line(line)
        except OSError as error:
            raise Refused(f"the testbed {name!r} does not answer: {error}") from None
    if not text:
        raise Refused(f"the testbed {name!r} ended while it was asked to {request['do']}")
    answer = json.loads(text)
    if "refused" in answer:
        raise Refused(answer["refused"])
    return answer, fds[0] if fds else None


def serve(line, answer):
    """The fabric's side: `answer(request)` gives (reply, descriptor or None)."""
    with line:
        line.settimeout(10)
        text, _ = _read_line(line)
        if not text:
            return
        if peer(line)[1] != 0:
            reply, fd = {"refused": "only root may use a testbed"}, None
        else:
            reply, fd = answer(json.loads(text))
        socket.send_fds(line, [json.dumps(reply).encode() + b"\n"], [] if fd is None else [fd])
        if fd is not None:
            os.close(fd)
