"""Looking into a host: a function runs in its namespaces, in a process of its own, and its answer comes back."""

import json
import os
import signal

from . import linux


LONGEST = 300
"""Bytes of a command line that are shown."""


def call(pidfd, function, *words):
    """`function(*words)` inside the host; the answer must be JSON. `pidfd` is of the host's init."""
    answer_out, answer_in = os.pipe()
    outer = os.fork()
    if outer == 0:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            # A PID namespace is entered by the next child.
            linux.setns(pidfd, linux.NEWPID)
            inner = os.fork()
            if inner == 0:
                linux.setns(pidfd, linux.HOST_SPACES)
                with os.fdopen(answer_in, "w", encoding="utf-8") as out:
                    json.dump(function(*words), out)
                code = 0
            else:
                code = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) & 255
        finally:
            os._exit(code)
    os.close(answer_in)
    with os.fdopen(answer_out, encoding="utf-8") as out:
        text = out.read()
    os.waitpid(outer, 0)
    if not text:
        raise OSError("the host ended while it was looked into")
    return json.loads(text)


def _stat(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="surrogateescape") as file:
        head, _, tail = file.read().rpartition(")")
    return head.partition("(")[2], tail.split()[0], int(tail.split()[1])


def _owner(pid, names):
    uid = os.stat(f"/proc/{pid}").st_uid
    return names.get(uid, str(uid))


def census():
    """Every process of the host but this one, also those of namespaces below it: [pid, user, state, words, parent]."""
    with open("/etc/passwd", encoding="utf-8", errors="replace") as file:
        names = {int(fields[2]): fields[0] for fields in (line.split(":") for line in file) if len(fields) > 3}
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            comm, state, parent = _stat(entry)
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                # One line each: a program in an argument has many.
                words = " ".join(file.read(LONGEST).replace(b"\0", b" ").decode(errors="replace").split())
            owner = _owner(entry, names)
        except OSError:
            continue  # gone meanwhile
        if state in "ZX":
            continue  # dead, and waits to be reaped
        if comm.startswith("tb-host:"):
            words = comm  # a fork of the script: its command line is the script's
        found.append([int(entry), owner, state, words or f"[{comm}]", parent])
    return sorted(found)


def freeze():
    """Stops everything but init; returns those that were stopped already."""
    before, seen = [], set()
    while True:
        fresh = False
        for entry in os.listdir("/proc"):
            pid = int(entry) if entry.isdigit() else 0
            if pid <= 1 or pid == os.getpid():
                continue
            try:
                state = _stat(pid)[1]
                if state in "ZX":
                    continue
                if state in "Tt":
                    if pid not in seen:
                        before.append(pid)
                else:
                    os.kill(pid, signal.SIGSTOP)
                    fresh = True
                seen.add(pid)
            except OSError:
                continue  # gone meanwhile
        if not fresh:
            return before


def thaw(stopped_before):
    """Lets everything run that did before."""
    for entry in os.listdir("/proc"):
        pid = int(entry) if entry.isdigit() else 0
        if pid > 1 and pid != os.getpid() and pid not in stopped_before:
            try:
                os.kill(pid, signal.SIGCONT)
            except OSError:
                pass  # gone meanwhile
    return True
