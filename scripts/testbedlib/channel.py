"""Connection of a command to its testbed: an abstract unix socket. The name is free when, and only when, the testbed is gone."""

import contextlib
import errno
import json
import os
import re
import socket
import struct
import time

REQUEST = 64 << 10
"""No request is longer."""
ANSWER = 16 << 20
"""No answer is."""


class Refused(Exception):
    """The testbed (or the machine) cannot do what was asked; the text says why."""


def check_name(name):
    """A testbed's name is part of process and socket names."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,40}", name):
        raise ValueError(f"TESTBED_NAME={name!r}: 1 to 40 letters, digits, dots, dashes and underscores")
    return name


def _address(name):
    return f"\0rlaunch-testbed/{name}"


def claim(name):
    """Takes the name; the fabric listens later, so that the kernel notes *its* pid as the peer."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.bind(_address(name))
    except OSError:
        raise Refused(f"the testbed {name!r} is up already: `testbed down` ends it, TESTBED_NAME names another") from None
    return listener


def connect(name):
    """A connection to a testbed. The kernel reports the fabric as its peer."""
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


def _read_line(line, limit, seconds):
    """One line of at most `limit` bytes, all of it within `seconds`, and the descriptors that came with it."""
    end = time.monotonic() + seconds
    text = bytearray()
    fds = []
    try:
        while not text.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("it takes too long")
            # At least that much: 0 would mean not to wait at all.
            line.settimeout(max(left, 0.001))
            part, more, _, _ = socket.recv_fds(line, limit + 1 - len(text), 1)
            fds += more
            if not part:
                break
            text += part
            if len(text) > limit:
                raise OSError(errno.EMSGSIZE, f"more than {limit} bytes in a line")
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise
    return bytes(text), fds


def ask(name, /, **request):
    """One question, one answer, and at most one descriptor that comes with it."""
    with connect(name) as line:
        # A refusal comes before the request is sent: the answer is there.
        with contextlib.suppress(BrokenPipeError):
            line.sendall(json.dumps(request).encode() + b"\n")
        try:
            text, fds = _read_line(line, ANSWER, 120)
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
        # Checked before a byte is read: the kernel has noted the user of the peer.
        if peer(line)[1] != 0:
            reply, fd = {"refused": "only root may use a testbed"}, None
        else:
            text, fds = _read_line(line, REQUEST, 10)
            for each in fds:
                os.close(each)
            if not text:
                return
            reply, fd = answer(json.loads(text))
        line.settimeout(10)
        try:
            socket.send_fds(line, [json.dumps(reply).encode() + b"\n"], [] if fd is None else [fd])
        finally:
            if fd is not None:
                os.close(fd)
