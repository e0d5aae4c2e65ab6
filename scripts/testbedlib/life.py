"""From nothing to a testbed, and back: the only two moments at which something of it is outside."""

import contextlib
import os
import select
import shutil
import signal

from . import channel, fabric, linux, slurm

NEEDED = (("ip", "iproute2"), ("nft", "nftables"), ("ssh-keygen", "openssh-client"), ("/usr/sbin/sshd", "openssh-server"))


def _check_machine(plan):
    if os.geteuid() != 0:
        raise channel.Refused("hosts are made of namespaces and mounts: only root can (try sudo)")
    for program, package in (*NEEDED, *(slurm.NEEDED if plan.slurm else ())):
        if shutil.which(program) is None:
            raise channel.Refused(f"{program} was not found: apt-get install --no-install-recommends {package}")


def up(plan, bound):
    """Makes a testbed. `bound`: it dies with this process; then returns a pidfd that is ready when it is gone."""
    _check_machine(plan)
    listener = channel.claim(plan.name)
    report_out, report_in = os.pipe()
    bond = linux.Bond() if bound else None
    between = os.fork()
    if between == 0:
        os.close(report_out)
        _between(plan, listener, report_in, bond)
    if bond:
        bond.made()
    listener.close()
    os.close(report_in)
    gone = os.pidfd_open(between)
    with os.fdopen(report_out, encoding="utf-8", errors="replace") as report:
        word = report.readline().strip()
    if word != "ready":
        os.waitpid(between, 0)
        os.close(gone)
        raise channel.Refused("the testbed did not come up: " + (word.replace("\v", "\n") or "its first process was killed"))
    if bound:
        return gone
    os.waitpid(between, 0)
    os.close(gone)
    return None


def _between(plan, listener, report, bond):
    """The process that makes the namespaces: their first process must be a child."""
    try:
        os.setsid()
        if bond:
            bond.keep()
            linux.name_me("tb-between")
            bond = linux.Bond()
        linux.unshare(linux.HOST_SPACES | linux.NEWPID)
        first = os.fork()
        if first == 0:
            if bond:
                bond.keep()
            fabric.run(plan, listener, report)
        os.close(report)
        listener.close()
        if bond:
            bond.made()
            os.waitpid(first, 0)
        os._exit(0)
    except BaseException as error:  # pylint: disable=broad-except
        with contextlib.suppress(OSError):
            os.write(report, f"{error}\n".encode())
    finally:
        os._exit(1)


def down(name):
    """One SIGKILL, and the wait for what it does: the kernel ends all that is in the namespaces first."""
    fd = channel.fabric_pidfd(name)
    try:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        if not select.select([fd], [], [], 60)[0]:
            raise channel.Refused(f"the testbed {name!r} did not end within 60 s: a process of it cannot be killed")
    finally:
        os.close(fd)


def is_up(name):
    """Whether the name is taken."""
    try:
        channel.claim(name).close()
    except channel.Refused:
        return True
    return False
