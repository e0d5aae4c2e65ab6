"""`exec`: a command on a host, with the caller's descriptors, terminal, folder and signals."""

import os
import pathlib
import signal

from . import channel, linux

FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
SI_KERNEL = 0x80
"""A signal of the terminal: it went to the whole group, the command included."""
DROPPED = ("SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "XDG_RUNTIME_DIR", "TMPDIR", "OLDPWD",
           "DBUS_SESSION_BUS_ADDRESS")
"""What names a thing of the machine that hosts do not see."""


def _account(name):
    """(uid, gid, groups, home, shell) from the host's own tables."""
    for line in pathlib.Path("/etc/passwd").read_text(errors="replace").splitlines():
        fields = line.split(":")
        if fields[0] == name and len(fields) == 7:
            break
    else:
        raise OSError(f"there is no user {name!r}")
    gid, groups = int(fields[3]), [int(fields[3])]
    for line in pathlib.Path("/etc/group").read_text(errors="replace").splitlines():
        group = line.split(":")
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


def run(name, host, user, cwd, words, pidfile):
    """Runs the command; returns its exit code, 128 + N if signal N ended it."""
    answer, pidfd = channel.ask(name, do="look", names=[host])
    state = answer["hosts"][0]
    if not state["up"]:
        raise channel.Refused(f"{host} is off: `testbed start-host {host}`")
    if state["frozen"]:
        raise channel.Refused(f"{host} is frozen: `testbed thaw {host}`")
    # Blocked before the fork, so that none is lost; taken one by one, because a handler would not know who sent it.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    waiting = [signal.SIGCHLD, *FORWARDED]
    signal.pthread_sigmask(signal.SIG_BLOCK, waiting)
    complaint_out, complaint_in = os.pipe()
    linux.setns(pidfd, linux.NEWPID)
    bond = linux.Bond()
    pid = os.fork()
    if pid == 0:
        os.close(complaint_out)
        _become(pidfd, host, user, cwd, words, complaint_in, bond)
    bond.made()
    os.close(complaint_in)
    os.close(pidfd)
    if pidfile:
        pathlib.Path(pidfile).write_text(f"{pid}\n")
    status = _follow(pid, waiting)
    with os.fdopen(complaint_out, encoding="utf-8", errors="replace") as complaint:
        why = complaint.read()
    code = os.waitstatus_to_exitcode(status)
    if why:
        raise Failed(why, code)
    return 128 - code if code < 0 else code


class Failed(Exception):
    """The command never ran."""

    def __init__(self, why, code):
        super().__init__(why)
        self.code = code


def _follow(pid, waiting):
    while True:
        info = signal.sigwaitinfo(waiting)
        if info.si_signo == signal.SIGCHLD:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return status
        elif info.si_code != SI_KERNEL:
            os.kill(pid, info.si_signo)
