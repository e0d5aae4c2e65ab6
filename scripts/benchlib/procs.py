"""Processes as /proc shows them: who descends from a launcher, what it holds in memory. Never asks a rank for its own pid,
which may be one of another PID namespace."""

import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import time

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """Makes this process the parent of orphans below it, so that no process escapes the clean-up."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _parents():
    table = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as stat:
                    table[int(entry)] = int(stat.read().rpartition(b")")[2].split()[1])
            except OSError:
                pass  # gone meanwhile
    return table


def children(parent):
    """The direct children of a process."""
    return {pid for pid, above in _parents().items() if above == parent}


def name(pid):
    """The kernel's name of a process; empty if it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def descendants(root):
    """All processes below `root`, itself not included."""
    parents = _parents()
    below = {root}
    grew = True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in below and pid not in below}
        below |= more
        grew = bool(more)
    return below - {root}


def own_number(pid):
    """The number by which a process knows itself: another one in a PID namespace. None: it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as status:
            return next(int(line.split()[-1]) for line in status if line.startswith("NSpid:"))
    except (OSError, StopIteration):
        return None


def has_token(pid, token):
    """Whether the token stands in the process's command line as a word of its own."""
    try:
        return token.encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def distinct(pids):
    """The pids with a memory of their own. Memory that two processes share counts for the first one."""
    found = []
    for pid in pids:
        if not any(_share_memory(pid, other) for other in found):
            found.append(pid)
    return found


def _share_memory(one, other):
    """kcmp(2) with KCMP_VM; False where it may not be asked."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = {"x86_64": 312, "aarch64": 272}.get(os.uname().machine)
    return number is not None and libc.syscall(number, one, other, 1, 0, 0) == 0


def memory(pid):
    """Memory of a process in KiB: resident now, highest resident so far, proportional share."""
    def field(file, name):
        try:
            for line in pathlib.Path(f"/proc/{pid}/{file}").read_text().splitlines():
                if line.startswith(name + ":"):
                    return int(line.split()[1])
        except OSError:
            pass  # gone meanwhile
        return 0

    return {"rss": field("status", "VmRSS"), "peak": field("status", "VmHWM"), "pss": field("smaps_rollup", "Pss")}


def resident(pids):
    """The sum of what these processes hold now, in KiB: one read each, cheap enough to sample often."""
    pages = 0
    for pid in pids:
        try:
            pages += int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            pass  # gone meanwhile
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def end_all():
    """Kills and reaps all descendants of this benchmark, which it has started or adopted."""
    end = time.monotonic() + 10
    while (left := descendants(os.getpid())) and time.monotonic() < end:
        kill(left)
        time.sleep(0.005)
    return not left


def kill(pids):
    """SIGKILL for each, and the end of the zombies among them that are ours."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, os.WNOHANG)
        except (ProcessLookupError, ChildProcessError):
            pass  # gone, or it has a parent below us that reaps it


class Job:
    """A launcher that keeps running, with ranks that carry `token` in their command line."""

    def __init__(self, command, token, stdout=subprocess.DEVNULL, environ=None):
        self.token = token
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL,
                                        start_new_session=True, env=environ)
        self.seen = set()

    @property
    def launcher(self):
        """The pid of the launcher itself."""
        return self.process.pid

    def below(self):
        """Every process of the job but the one that was started here."""
        return descendants(self.process.pid)

    def split(self):
        """(ranks, the launcher's own processes) at this moment."""
        below = self.below()
        ranks = {pid for pid in below if has_token(pid, self.token) and not self.is_launcher(pid)}
        self.seen |= below
        return ranks, (below - ranks) | {self.launcher}

    def is_launcher(self, pid):
        """Whether this is a process of the launcher. Proxies may have the ranks' words as well, so the executable decides."""
        try:
            return pathlib.Path(os.readlink(f"/proc/{pid}/exe")).name not in ("idle_rank", "writer")
        except OSError:
            return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Ends the job in any state. A pid that another program uses by now does not descend from this process."""
        # SIGTERM comes first, so that the launcher removes its temporary files.
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            self.seen |= self.below() | {self.process.pid}
            alive = self.seen & descendants(os.getpid())
            if not alive:
                return
            self.process.kill()
            kill(alive - {self.process.pid})
            self.process.poll()
            time.sleep(0.005)
