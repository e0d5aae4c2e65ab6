"""One host: the first process of its namespaces, and its sshd."""

import contextlib
import fcntl
import os
import signal
import socket
import struct
import time

from . import linux, tree

SSHD = "/usr/sbin/sshd"
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, IFF_UP = 0x8914, 0x8916, 0x891C, 1


class Failed(Exception):
    """A host did not come up."""


class Rising:
    """A host that is being started: `spawned`, then its cable is laid, then `ready`."""

    def __init__(self, pid, words, cable):
        self.pid = pid
        self._words = words
        self._cable = cable

    def lay_cable(self):
        """Tells the host that its network device is there."""
        with contextlib.suppress(BrokenPipeError):  # it has died: `ready` says of what
            os.write(self._cable, b".")
        os.close(self._cable)

    def word(self, wanted):
        """Waits for the host's next word; returns what follows it."""
        line = self._words.readline().strip()
        if not line.startswith(wanted):
            raise Failed(line or "it ended without a word")
        return line[len(wanted):].strip()

    def close(self):
        """No more words are expected."""
        self._words.close()


def spawn(plan, host, shares, own_pid_space):
    """Forks a host's init off the fabric. `own_pid_space` brings the fabric back to its own."""
    words_out, words_in = os.pipe()
    cable_out, cable_in = os.pipe()
    linux.unshare(linux.NEWPID)
    try:
        pid = os.fork()
        if pid == 0:
            os.close(words_out)
            os.close(cable_in)
            _init(plan, host, shares, words_in, cable_out)
    finally:
        linux.setns(own_pid_space, linux.NEWPID)
    os.close(words_in)
    os.close(cable_out)
    return Rising(pid, os.fdopen(words_out, encoding="utf-8", errors="replace"), cable_in)


def _init(plan, host, shares, words, cable):
    """The life of a host's first process; never returns."""
    def say(text):
        os.write(words, text.replace("\n", " ").encode() + b"\n")
    try:
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        linux.name_me(f"tb-host:{host.name}")
        linux.unshare(linux.HOST_SPACES)
        say("spawned")
        socket.sethostname(host.name)
        tree.build(plan, host, shares)
        if os.read(cable, 1) != b".":
            raise OSError("its cable was never laid")
        _network(host)
        sshd = _start_sshd()
        _wait_for_port(22, sshd)
        linux.close_all_but((words,))
        say(f"ready {sshd}")
        os.close(words)
    except BaseException as error:  # pylint: disable=broad-except
        say(f"failed: {error}")
        os._exit(1)
    while True:
        signal.sigwait([signal.SIGCHLD])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


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


def _start_sshd():
    log = os.open("/run/sshd.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.chdir("/")
            os.umask(0o022)
            os.dup2(log, 2)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
            os.execve(SSHD, [SSHD, "-D", "-e"], {"PATH": path, "LANG": "C.UTF-8"})
        finally:
            os._exit(127)
    os.close(log)
    return pid


def _wait_for_port(port, sshd):
    """sshd tells nobody when it listens, but the kernel's table does."""
    wanted = f":{port:04X}"
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with open("/proc/net/tcp", encoding="ascii") as table:
            if any(line.split()[1].endswith(wanted) and line.split()[3] == "0A" for line in table if ":" in line[4:]):
                return
        if os.waitpid(sshd, os.WNOHANG)[0]:
            with open("/run/sshd.log", encoding="utf-8", errors="replace") as log:
                raise OSError(f"sshd ended: {log.read().strip()}")
        time.sleep(0.002)
    raise OSError(f"sshd does not listen on port {port}")
