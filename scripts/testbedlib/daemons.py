"""The daemons of a host: its first process starts them, waits until they listen, and sees them end."""

import dataclasses
import os
import signal
import time

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIMIT = 30
"""A daemon that does not listen after so many seconds never will."""
TAIL = 12
"""Lines of a log that an error shows."""


@dataclasses.dataclass(frozen=True)
class Daemon:
    """A daemon in the foreground, as a child of the host's first process."""

    name: str
    pid: int

    @property
    def log(self):
        """Everything that it writes; /run is the host's own."""
        return log_of(self.name)


def log_of(name):
    """The log of a daemon."""
    return f"/run/{name}.log"


def tail(name):
    """The last lines of a daemon's log."""
    try:
        with open(log_of(name), encoding="utf-8", errors="replace") as log:
            lines = log.read()[-8192:].strip().splitlines()[-TAIL:]
    except OSError as error:
        return f"(its log cannot be read: {error.strerror})"
    return "\n".join(lines) or "(its log is empty)"


def ending(status):
    """A status of waitpid, in words."""
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def start(name, words):
    """Starts a daemon with an environment of its own."""
    log = os.open(log_of(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
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
            os.execve(words[0], words, {"PATH": PATH, "LANG": "C.UTF-8"})
        finally:
            os._exit(127)
    os.close(log)
    return Daemon(name, pid)


def wait_for(daemon, fact, what):
    """Waits for a fact about a daemon that sends no event. Its end is an error at once."""
    end = time.monotonic() + LIMIT
    while not fact():
        done, status = os.waitpid(daemon.pid, os.WNOHANG)
        if done:
            raise OSError(f"{daemon.name} has died ({ending(status)}):\n{tail(daemon.name)}")
        if time.monotonic() >= end:
            raise OSError(f"{daemon.name} does not {what} after {LIMIT} s:\n{tail(daemon.name)}")
        time.sleep(0.002)


def wait_for_port(daemon, port):
    """Waits for a listener in the kernel's table."""
    wait_for(daemon, lambda: _listens(f":{port:04X}"), f"listen on port {port}")


def _listens(wanted):
    with open("/proc/net/tcp", encoding="ascii") as table:
        return any(line.split()[1].endswith(wanted) and line.split()[3] == "0A" for line in table if ":" in line[4:])
