"""One host: the first process of its namespaces, and its daemons."""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct

from . import daemons, linux, slurm, tree

SSHD = "/usr/sbin/sshd"
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, IFF_UP = 0x8914, 0x8916, 0x891C, 1


class Failed(Exception):
    """A host did not come up."""


class Rising:
    """A host that is being started: `spawned`, then its cable is laid, then `ready`; with Slurm a node then waits to be `serving`."""

    def __init__(self, pid, words, orders):
        self.pid = pid
        self.words = words
        self._orders = orders

    def order(self):
        """Lets the host take its next step: its network device is there, or slurmctld is."""
        with contextlib.suppress(BrokenPipeError):  # it has died: its next word says of what
            os.write(self._orders, b".")

    def word(self, wanted):
        """Waits for the host's next word; returns what follows it, read as JSON."""
        line = self.words.next()
        if not line.startswith(wanted):
            raise Failed(line or "it ended without a word")
        return json.loads(line[len(wanted):] or "null")

    def close(self):
        """No more orders are given."""
        os.close(self._orders)


class Words:
    """What a host's first process reports: lines, in which a vertical tab stands for a line break."""

    def __init__(self, fd):
        self.fd = fd
        self._seen = b""

    def next(self, wait=True):
        """The next line; an empty one at the end, and None if there is none yet and `wait` is not set."""
        while b"\n" not in self._seen:
            if not wait and not select.select([self.fd], [], [], 0)[0]:
                return None
            part = os.read(self.fd, 65536)
            if not part:
                return ""
            self._seen += part
        line, _, self._seen = self._seen.partition(b"\n")
        return line.decode(errors="replace").replace("\v", "\n")

    def close(self):
        """The host is off."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


def spawn(plan, host, shares, own_pid_space):
    """Forks a host's init off the fabric. `own_pid_space` brings the fabric back to its own."""
    words_out, words_in = os.pipe()
    orders_out, orders_in = os.pipe()
    linux.unshare(linux.NEWPID)
    try:
        pid = os.fork()
        if pid == 0:
            os.close(words_out)
            os.close(orders_in)
            _init(plan, host, shares, words_in, orders_out)
    finally:
        linux.setns(own_pid_space, linux.NEWPID)
    os.close(words_in)
    os.close(orders_out)
    return Rising(pid, Words(words_out), orders_in)


def _init(plan, host, shares, words, orders):
    """The life of a host's first process; never returns."""
    def say(text):
        os.write(words, text.replace("\n", "\v").encode() + b"\n")
    try:
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        linux.name_me(f"tb-host:{host.name}")
        linux.unshare(linux.HOST_SPACES)
        say("spawned")
        socket.sethostname(host.name)
        tree.build(plan, host, shares)
        running = _start_daemons(plan, host, orders)
        linux.close_all_but((words, orders))
        say("ready " + json.dumps({each.name: each.pid for each in running}))
        if plan.slurm and host.name != "login":
            _wait_for_order(orders, "slurmctld never came up")
            running.append(slurm.start_slurmd(host.name))
            say("serving " + json.dumps({running[-1].name: running[-1].pid}))
        os.close(orders)
        if not plan.slurm:
            os.close(words)
    except BaseException as error:  # pylint: disable=broad-except
        say(f"failed: {error}")
        os._exit(1)
    _reap(running, say if plan.slurm else lambda _: None)


def _wait_for_order(orders, why):
    if os.read(orders, 1) != b".":
        raise OSError(why)


def _start_daemons(plan, host, orders):
    """The daemons that need no other host; munged starts while the network is made."""
    running = [slurm.start_munged()] if plan.slurm else []
    _wait_for_order(orders, "its cable was never laid")
    _network(host)
    sshd = daemons.start("sshd", [SSHD, "-D", "-e"])
    if plan.slurm:
        slurm.wait_for_munged(running[0])
        if host.name == "login":
            running.append(slurm.start_slurmctld())
    daemons.wait_for_port(sshd, 22)
    return [sshd, *running]


def _reap(running, say):
    """Takes note of every process that ends; the end of a daemon is reported."""
    names = {each.pid: each.name for each in running}
    while True:
        signal.sigwait([signal.SIGCHLD])
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                if pid in names:
                    name = names.pop(pid)
                    # The log comes with the report, because the host may be off soon.
                    say("died " + json.dumps({"name": name, "how": daemons.ending(status), "log": daemons.tail(name)}))


def _network(host):
    for name in ("all", "default"):
        # Link-local addresses would take their time, and be a way around the partitions.
        with contextlib.suppress(OSError), open(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6", "w", encoding="ascii") as file:
            file.write("1")

    def address(text):
        return struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for what, name, value in ((SIOCSIFFLAGS, b"lo", struct.pack("H14x", IFF_UP)),
                                  (SIOCSIFADDR, b"eth0", address(host.address)),
                                  (SIOCSIFNETMASK, b"eth0", address("255.255.0.0")),
                                  (SIOCSIFFLAGS, b"eth0", struct.pack("H14x", IFF_UP))):
            fcntl.ioctl(sock, what, struct.pack("16s16s8x", name, value))

