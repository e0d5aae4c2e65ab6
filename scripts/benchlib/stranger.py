"""Repeated attacks of another user against a job. The script runs as that user, and is passed as text: the checkout may not be readable.

    stranger.py ROOT job|else    attempts at everything below the process ROOT, or as many at ROOT itself

Says `ready`, then works until its stdin ends, and says how many passes it made and which attempts succeeded.
"""

import os
import resource
import select
import signal
import socket
import sys

FILES = ("environ", "mem", "maps", "fd/0", "fd/1")
SIGNALS = (0, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL)


def below(root):
    """The processes that descend from `root`."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", "rb") as stat:
                parents[int(entry)] = int(stat.read().rpartition(b")")[2].split()[1])
        except OSError:
            pass  # gone meanwhile
    found, grew = {root}, True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        found |= more
        grew = bool(more)
    return sorted(found - {root, os.getpid()})


def attempt(what, action, succeeded):
    """Makes an attempt, and notes it if it succeeds."""
    try:
        action()
    except OSError:
        return
    succeeded.add(what)


def read(path):
    """Reads a byte. Some files of a process that has exited can be opened, and are empty."""
    with open(path, "rb", buffering=0) as file:
        if not file.read(1):
            raise OSError("nothing to read")


def one_pass(targets, prefix, succeeded):
    """Every attempt once: signals, what /proc shows, names, files in the open."""
    for pid in targets:
        for sig in SIGNALS:
            attempt(f"signal {int(sig)}", lambda: os.kill(pid, sig), succeeded)
        for name in FILES:
            attempt(f"read {name}", lambda: read(f"/proc/{pid}/{name}"), succeeded)
            attempt(f"write {name}", lambda: os.close(os.open(f"/proc/{pid}/{name}", os.O_WRONLY)), succeeded)
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as table:
        names = [line.split()[-1] for line in table if f"@{prefix}-" in line]
    for name in names[:64]:
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            with socket.socket(socket.AF_UNIX, kind) as one:
                attempt("connect", lambda: one.connect("\0" + name[1:]), succeeded)
    for place in ("/tmp", "/dev/shm"):
        for name in os.listdir(place):
            if name.startswith("rlaunch-") and not name.startswith("rlaunch-bench-"):
                attempt("write a file", lambda: os.close(os.open(f"{place}/{name}", os.O_WRONLY)), succeeded)


def take_names(prefix):
    """Every free name of this kind: where they could reserve ports, the job must do with one that is not reserved."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held = []
    for port in range(10_000, 65_536, 8):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            one.bind(f"\0{prefix}-{port}")
        except OSError:
            one.close()
            continue
        held.append(one)
    return held


def main():
    """Makes attempts until the end of stdin."""
    root, at_job = int(sys.argv[1]), sys.argv[2] == "job"
    prefix = "rlaunch-port" if at_job else "somebody-elses"
    held = take_names(prefix)
    print("ready", flush=True)
    passes, succeeded = 0, set()
    while not select.select([0], [], [], 0.001)[0]:
        found = below(root)
        one_pass(found if at_job else [root] * len(found), prefix, succeeded)
        passes += 1
    print(passes, len(held), ", ".join(sorted(succeeded)))


if __name__ == "__main__":
    main()
