"""An agent and a launcher in one, for tests of the client alone: it speaks the client's wire, and makes rounds as a job does.

    with Agent(2) as agent:
        ...processes with agent.env(rank) in their environment...

Every frame that comes is in `agent.said`, as (rank, name, fields). Ranks whose session ends are lost.
"""

import os
import selectors
import socket
import struct
import tempfile
import threading

HELLO = b"rlaunch\n"
SESSION = 16
REGISTER, FAULT, READY, RETURNED, LEAVE, ALIVE, SECTION, HOOKS = range(8)
BEGIN, INTERRUPT, FINISH, DISMISSED = range(4)
NAMES = ["register", "fault", "ready", "returned", "leave", "alive", "section", "hooks"]
EXCEPTION, HANG, ENDED = 0, 1, 2
JOINED = 7
DISCARDED, GIVEN_UP, REFUSED = range(3)


class Fields:
    """Reads a message as postcard writes it."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self):
        """A number with seven bits in each byte, the lowest first. The last byte is below 128."""
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def bytes(self):
        length = self.number()
        self.at += length
        return self.data[self.at - length : self.at]

    def list(self, item):
        return [item() for _ in range(self.number())]


def number(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def optional(value):
    """An encoded value, or None."""
    return b"\0" if value is None else b"\1" + value


def words(data):
    return number(len(data)) + data


def fault(initial, kind, text=b"", status=b""):
    return number(initial) + number(kind) + status + words(text)


def read(frame):
    """The fields of a message of a process."""
    fields = Fields(frame)
    assert fields.number() == SESSION, frame
    kind = fields.number()
    if kind == REGISTER:
        return kind, dict(fields.list(lambda: (fields.bytes().decode(), fields.bytes().decode())))
    if kind == LEAVE:
        return kind, (fields.number(), fields.bytes().decode())
    current = fields.number()
    if kind == FAULT:
        return kind, (current, fields.bytes().decode())
    if kind == READY:
        return kind, (current, [key.decode() for key in fields.list(fields.bytes)])
    if kind in (ALIVE, HOOKS):
        return kind, (current, bool(fields.number()))
    if kind == SECTION:
        return kind, (current, fields.number() / 1e9 if fields.number() else None)
    return kind, (current,)


class Rank:
    """Process of a rank."""

    def __init__(self, sock):
        self.sock, self.came, self.initial = sock, b"", None
        self.greeted = self.registered = self.ready = self.returned = self.lost = False

    def say(self, kind, body):
        body = bytes([SESSION, kind]) + body
        try:
            self.sock.sendall(struct.pack("<I", len(body)) + body)
        except OSError:
            pass  # The reader notices the end of the connection.


class Agent:
    """Agent of `size` ranks, of which the first `active` are active."""

    def __init__(self, size, active=None, env=lambda initial, active: {}):
        self.size, self.active, self.round_env = size, active, env
        self.said, self.round = [], -1
        self.ranks, self.last_fault, self.interrupted, self.over = {}, None, False, False
        self.changed = threading.Condition()
        self.home = tempfile.TemporaryDirectory(prefix="rl")
        self.path = os.path.join(self.home.name, "s")

    def __enter__(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        self.wake, self.stop = os.pipe()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        os.close(self.stop)
        self.thread.join()
        os.close(self.wake)
        self.listener.close()
        for rank in self.ranks.values():
            rank.sock.close()
        self.home.cleanup()

    def env(self, rank):
        """The environment of a rank."""
        return {
            "RLAUNCH_SOCKET": self.path,
            "RLAUNCH_RANK": str(rank),
            "RLAUNCH_WORLD_SIZE": str(self.size),
            "RLAUNCH_JOB_ID": "0" * 32,
            "RANK": str(rank),
            "WORLD_SIZE": str(self.size),
        }

    def run(self):
        with selectors.DefaultSelector() as waits:
            waits.register(self.listener, selectors.EVENT_READ)
            waits.register(self.wake, selectors.EVENT_READ)
            while True:
                for key, _ in waits.select():
                    if key.fileobj is self.listener:
                        sock, _ = self.listener.accept()
                        waits.register(sock, selectors.EVENT_READ, Rank(sock))
                    elif key.fileobj == self.wake:
                        return
                    else:
                        data = key.data.sock.recv(1 << 16)
                        with self.changed:
                            if data:
                                self.receive(key.data, data)
                            else:
                                waits.unregister(key.fileobj)
                                self.lose(key.data)
                            self.changed.notify_all()

    def receive(self, rank, data):
        rank.came += data
        if not rank.greeted and len(rank.came) >= 16:
            assert rank.came[:8] == HELLO, rank.came
            rank.initial = struct.unpack_from("<I", rank.came, 12)[0]
            rank.came, rank.greeted = rank.came[16:], True
            rank.sock.sendall(HELLO + struct.pack("<II", 1, 0))
        while rank.greeted and len(rank.came) >= 4:
            length = struct.unpack_from("<I", rank.came)[0]
            if len(rank.came) < 4 + length:
                return
            frame, rank.came = rank.came[4 : 4 + length], rank.came[4 + length :]
            kind, fields = read(frame)
            self.said.append((rank.initial, NAMES[kind], fields))
            self.take(rank, kind, fields)

    def take(self, rank, kind, fields):
        if kind == REGISTER:
            self.ranks[rank.initial] = rank
            rank.registered = True
            if len(self.ranks) == self.size:
                self.begin()
        elif kind == FAULT:
            self.interrupt(fault(rank.initial, EXCEPTION, fields[1].encode()))
        elif kind == READY:
            rank.ready = True
            self.go_on()
        elif kind == RETURNED:
            rank.returned = True
            self.go_on()
        elif kind == LEAVE:
            self.lose(rank)

    def living(self):
        return [rank for _, rank in sorted(self.ranks.items()) if not rank.lost]

    def lose(self, rank):
        if not rank.registered or rank.lost:
            return
        rank.lost = True
        if self.round >= 0 and not self.over:
            self.interrupt(fault(rank.initial, ENDED, b"", bytes([1, 9, 0])))
            self.go_on()

    def interrupt(self, what, within=None):
        """Ends the round."""
        if self.interrupted or self.over:
            return
        self.interrupted, self.last_fault = True, what
        for rank in self.living():
            if not rank.ready:
                span = None if within is None else number(int(within * 1e9))
                rank.say(INTERRUPT, number(self.round) + what + optional(span))

    def go_on(self):
        living = self.living()
        if self.interrupted and living and all(rank.ready for rank in living):
            self.begin()
        workers = living[: self.active]
        if not self.interrupted and all(rank.returned for rank in workers) and workers:
            self.over = True
            for rank in living:
                rank.say(FINISH, number(self.round))

    def begin(self):
        self.round, self.interrupted = self.round + 1, False
        living = self.living()
        workers = len(living) if self.active is None else min(self.active, len(living))
        for new_rank, rank in enumerate(living):
            rank.ready = rank.returned = False
            active = new_rank if new_rank < workers else None
            env = {"RANK": active, "WORLD_SIZE": workers if active is not None else None}
            env.update(self.round_env(rank.initial, active))
            body = number(self.round) + number(new_rank) + number(len(living))
            body += optional(None if active is None else number(active))
            body += number(workers) + number(rank.initial) + number(self.size)
            body += optional(self.last_fault) + number(len(env))
            for name, value in env.items():
                body += words(name.encode()) + optional(None if value is None else words(str(value).encode()))
            rank.say(BEGIN, body)

    def dismiss(self, initial, why, text):
        """Dismisses a rank, which takes part in no further round."""
        with self.changed:
            self.ranks[initial].lost = True
            self.ranks[initial].say(DISMISSED, bytes([why]) + words(text.encode()))

    def hang(self, initial):
        """Ends the round because a rank hangs."""
        with self.changed:
            self.interrupt(fault(initial, HANG, b"silent for 1 s"))

    def wait_for(self, test, within=60):
        """Waits until a test of the messages is true."""
        with self.changed:
            assert self.changed.wait_for(lambda: test(self.said), within), self.said
