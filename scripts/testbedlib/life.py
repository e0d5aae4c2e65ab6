"""From nothing to a testbed, and back: the only two moments at which something of it is outside."""

import contextlib
import dataclasses
import os
import select
import shutil
import signal
import time

from . import cgroups, channel, fabric, linux, slurm

NEEDED = (("ip", "iproute2"), ("nft", "nftables"), ("ssh-keygen", "openssh-client"), ("/usr/sbin/sshd", "openssh-server"))
ENDED_WITHIN = 60
"""Seconds in which a testbed has ended that was killed."""
THAW_EVERY = 0.02
"""Seconds between two looks at the control groups of a testbed that ends."""


def _check_machine(plan):
    if os.geteuid() != 0:
        raise channel.Refused("hosts are made of namespaces and mounts: only root can (try sudo)")
    for program, package in (*NEEDED, *(slurm.NEEDED if plan.slurm else ())):
        if shutil.which(program) is None:
            raise channel.Refused(f"{program} was not found: apt-get install --no-install-recommends {package}")


def check(plan):
    """Whether this machine can have such a testbed; refuses if not. Control groups are made, and removed again."""
    _check_machine(plan)
    if plan.cgroup:
        top, lock = cgroups.make(plan.name)
        cgroups.remove(top)
        os.close(lock)


def up(plan, bound):
    """Makes a testbed. `bound`: it dies with this process; then returns a pidfd that is ready when it is gone."""
    _check_machine(plan)
    listener = channel.claim(plan.name)
    locks = []
    if plan.cgroup:
        top, lock = cgroups.make(plan.name)
        plan, locks = dataclasses.replace(plan, top=top), [lock]
    report_out, report_in = os.pipe()
    bond = linux.Bond() if bound else None
    between = os.fork()
    if between == 0:
        os.close(report_out)
        _between(plan, listener, report_in, bond, locks)
    if bond:
        bond.made()
    listener.close()
    for fd in (report_in, *locks):
        os.close(fd)
    gone = os.pidfd_open(between)
    with os.fdopen(report_out, encoding="utf-8", errors="replace") as report:
        word = report.readline().strip()
    if word != "ready":
        os.waitpid(between, 0)
        os.close(gone)
        _clear(plan.name)
        raise channel.Refused("the testbed did not come up: " + (word.replace("\v", "\n") or "its first process was killed"))
    if bound:
        return gone
    os.waitpid(between, 0)
    os.close(gone)
    return None


def _between(plan, listener, report, bond, locks):
    """The process that makes the namespaces: their first process must be a child."""
    try:
        os.setsid()
        parent = None
        if bond:
            if plan.cgroup:
                # The control groups are removed when the parent dies.
                parent = bond.watch()
            else:
                bond.keep()
            linux.name_me("tb-between")
            bond = linux.Bond()
        linux.unshare(linux.HOST_SPACES | linux.NEWPID)
        first = os.fork()
        if first == 0:
            if bond:
                bond.keep()
            fabric.run(plan, listener, report, locks)
        for fd in (report, *locks):
            os.close(fd)
        listener.close()
        if bond:
            bond.made()
            if parent is not None:
                _follow(plan.name, first, parent)
            os.waitpid(first, 0)
            _clear(plan.name)
        os._exit(0)
    except BaseException as error:  # pylint: disable=broad-except
        with contextlib.suppress(OSError):
            os.write(report, f"{error}\n".encode())
    finally:
        os._exit(1)


def _follow(name, first, parent):
    """Waits for the end of the fabric, and ends it when the parent of this process dies."""
    fd = os.pidfd_open(first)
    if parent in select.select([fd, parent], [], [])[0]:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    while not select.select([fd], [], [], THAW_EVERY)[0]:
        cgroups.clear(name)


def _clear(name):
    """Removes the control groups of a testbed that has ended."""
    end = time.monotonic() + cgroups.GONE_WITHIN
    while not cgroups.clear(name):
        if time.monotonic() >= end:
            raise channel.Refused(f"control groups of {name!r} cannot be removed: a process is in them")
        time.sleep(0.005)


def down(name):
    """One SIGKILL, and the wait for what it does: the kernel ends all that is in the namespaces first."""
    fd = channel.fabric_pidfd(name)
    try:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        end = time.monotonic() + ENDED_WITHIN
        while not select.select([fd], [], [], THAW_EVERY)[0]:
            # The kernel kills no process of a frozen group.
            cgroups.clear(name)
            if time.monotonic() >= end:
                raise channel.Refused(f"the testbed {name!r} did not end within {ENDED_WITHIN} s: a process of it cannot be killed")
    finally:
        os.close(fd)
    _clear(name)


def is_up(name):
    """Whether the name is taken."""
    try:
        channel.claim(name).close()
    except channel.Refused:
        return True
    return False
