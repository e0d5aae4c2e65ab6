"""`exec`: a command on a host, with the caller's descriptors, terminal, folder and signals."""

import contextlib
import os
import select
import signal
import sys
import threading

from . import channel, linux

FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
SI_KERNEL = 0x80
"""A signal of the terminal: it went to the whole group, the command included."""
ALARM = signal.SIGIO
"""A daemon of the testbed has died: a thread sends it to its own process."""
REGARDLESS = "(`exec --regardless` runs a command all the same)"
FOREVER = 1e6
LAST_WORDS = 2
"""Seconds between SIGTERM and SIGKILL for a command whose testbed is broken."""
DROPPED = ("SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "XDG_RUNTIME_DIR", "TMPDIR", "OLDPWD",
           "DBUS_SESSION_BUS_ADDRESS")
"""Variables that name objects of the machine which hosts do not see."""


def _table(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return [line.rstrip("\n").split(":") for line in file]


def _account(name):
    """(uid, gid, groups, home, shell) from the host's own tables."""
    for fields in _table("/etc/passwd"):
        if fields[0] == name and len(fields) == 7:
            break
    else:
        raise OSError(f"there is no user {name!r}")
    gid, groups = int(fields[3]), [int(fields[3])]
    for group in _table("/etc/group"):
        if len(group) == 4 and name in group[3].split(","):
            groups.append(int(group[2]))
    return int(fields[2]), gid, groups, fields[5], fields[6]


def _become(pidfd, host, user, cwd, words, complaint, bond):
    """In the child: the host's namespaces, the user, the folder, the command."""
    what = f"entering {host}"
    try:
        linux.setns(pidfd, linux.HOST_SPACES)
        what = f"becoming {user} on {host}"
        uid, gid, groups, home, shell = _account(user)
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        bond.keep()
        what = f"entering the folder {cwd} on {host} as {user} (--cwd names another)"
        os.chdir(cwd)
        env = {name: value for name, value in os.environ.items() if name not in DROPPED}
        env.update(HOME=home, USER=user, LOGNAME=user, SHELL=shell, PWD=cwd)
        env.pop("HOSTNAME", None)
        for number in (*FORWARDED, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            if signal.getsignal(number) is not signal.SIG_IGN or number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        what = f"running {words[0]} on {host}"
        os.execvpe(words[0], words, env)
    except OSError as error:
        os.write(complaint, f"{what}: {error.strerror or error}".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) and what.startswith("running") else 125)


def run(name, host, user, cwd, words, pidfile, regardless=False):
    """Runs the command; returns its exit code, 128 + N if signal N ended it. `regardless`: also without the daemons of Slurm."""
    answer, pidfd = channel.ask(name, do="look", names=[host])
    state = answer["hosts"][0]
    if not state["up"]:
        raise channel.Refused(f"{host} is off: `testbed start-host {host}`")
    if state["frozen"]:
        raise channel.Refused(f"{host} is frozen: `testbed thaw {host}`")
    alarm = None
    if answer["slurm"] and not regardless:
        reports, alarm = channel.ask(name, do="alarm")
        if reports["died"]:
            raise channel.Refused("\n".join([*reports["died"], REGARDLESS]))
    # Blocked before the fork, so that none is lost; taken one by one, because a handler does not get the sender.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    waiting = [signal.SIGCHLD, ALARM, *FORWARDED]
    signal.pthread_sigmask(signal.SIG_BLOCK, waiting)
    complaint_out, complaint_in = os.pipe()
    own_pid_space = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    linux.setns(pidfd, linux.NEWPID)
    bond = linux.Bond()
    pid = os.fork()
    if pid == 0:
        os.close(complaint_out)
        _become(pidfd, host, user, cwd, words, complaint_in, bond)
    bond.made()
    # A thread can only be made in the PID namespace of the children.
    linux.setns(own_pid_space, linux.NEWPID)
    os.close(own_pid_space)
    os.close(complaint_in)
    os.close(pidfd)
    if pidfile:
        with open(pidfile, "w", encoding="ascii") as file:
            file.write(f"{pid}\n")
    if alarm is not None:
        threading.Thread(target=_listen, args=(alarm,), daemon=True).start()
    broken = _Broken(name, pid)
    status = _follow(pid, waiting, broken)
    with os.fdopen(complaint_out, encoding="utf-8", errors="replace") as complaint:
        why = complaint.read()
    code = os.waitstatus_to_exitcode(status)
    if why:
        raise Failed(why, code)
    if broken.reports:
        raise Failed("the command was ended", 125)
    return 128 - code if code < 0 else code


class Failed(Exception):
    """The command never ran."""

    def __init__(self, why, code):
        super().__init__(why)
        self.code = code


def _listen(alarm):
    """The thread that waits for the alarm, beside the wait for signals."""
    select.select([alarm], [], [])
    os.kill(os.getpid(), ALARM)


class _Broken:
    """A testbed whose daemon died while a command ran. The command would wait for it, often for minutes: it is ended instead."""

    def __init__(self, name, pid):
        self.reports = []
        self._name, self._pid = name, pid

    def note(self):
        """Asks for the reports, shows them, and asks the command to end. A testbed that is gone took its commands along."""
        with contextlib.suppress(channel.Refused):
            answer, alarm = channel.ask(self._name, do="alarm")
            os.close(alarm)
            self.reports = answer["died"]
        if self.reports:
            print("testbed: " + "\n".join([*self.reports, REGARDLESS]), file=sys.stderr, flush=True)
            self._kill(signal.SIGTERM)

    def insist(self):
        """The end of a command that did not end by itself."""
        self._kill(signal.SIGKILL)

    def _kill(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)


def _follow(pid, waiting, broken):
    while True:
        info = signal.sigtimedwait(waiting, LAST_WORDS if broken.reports else FOREVER)
        if info is None:
            broken.insist()
        elif info.si_signo == signal.SIGCHLD:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return status
        elif info.si_signo == ALARM:
            broken.note()
        elif info.si_code != SI_KERNEL:
            os.kill(pid, info.si_signo)
