"""Hosts for the rows whose names begin with ssh: a testbed (scripts/testbed) of which `login` is where launchers are started,
and node0, node1 … are where ranks run, reached by the machine's own ssh and sshd with default settings. All of them share one
home, and this machine's processors; so peers and floors, which do too, are what a figure is compared with."""

import atexit
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import time

from . import procs
from .measure import Clock

TESTBED = pathlib.Path(__file__).resolve().parents[1] / "testbed"
MOST = 16


class Hosts:
    """Testbed that starts with the first sample, and ends with this process."""

    name = "hosts"
    options = ()
    """Options of `scripts/testbed up`."""

    def __init__(self, bench):
        self.own_bench = bench
        self.scratch = pathlib.Path(bench.scratch) / self.name
        self.environ = dict(os.environ, TESTBED_NAME=f"bench-{self.name}-{os.getpid()}")
        self.holder = None
        self.resting = set()
        # The name cannot be part of a remote line, so the hosts do not look for the binary at this path.
        self.rlaunch = self.scratch / "o'dd" / "rlaunch"
        self.timed = self.scratch / "timed"
        self.rlaunch.parent.mkdir(parents=True)
        shutil.copy(bench.launchers["rlaunch"].words[0], self.rlaunch)
        shutil.copy(bench.programs["timed"], self.timed)
        self.scratch.parent.chmod(0o755)

    def up(self):
        """Makes the testbed once, and brings the agent's binary to the hosts."""
        if self.holder:
            return
        line = [TESTBED, "up", str(self.own_bench.size(MOST, 4)), "--hold", "--share", self.scratch, *self.options]
        # pylint: disable-next=consider-using-with
        self.holder = subprocess.Popen(line, env=self.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            sys.exit("bench: the testbed did not come up")
        atexit.register(self.holder.kill)
        self.resting = procs.descendants(self.holder.pid)
        self.warm_up()

    def warm_up(self):
        """Brings the agent's binary to the hosts."""
        self.do(self.rlaunch, "-n", 1, "-H", "node0", "/bin/true")

    def exec(self, *words):
        """The words that run a command on the login host."""
        return [sys.executable, str(TESTBED), "exec", "--cwd", "/", "login", *map(str, words)]

    def do(self, *words):
        """Runs a command on the login host that must succeed."""
        subprocess.run(self.exec(*words), env=self.environ, check=True, stdin=subprocess.DEVNULL, timeout=60)

    def launchers(self, count, slots=1):
        """The launchers with options for so many hosts and so many ranks on each."""
        listed = ",".join(f"node{i}:{slots}" if slots > 1 else f"node{i}" for i in range(count))
        found = {}
        for name, launcher in self.own_bench.launchers.items():
            if name == "before":
                continue  # one binary is on the hosts
            if name == "rlaunch":
                launcher = dataclasses.replace(launcher, words=(str(self.rlaunch),))
            # What peers need on the hosts lies there at the same path as here; PATH does not lead to it.
            prefix = str(pathlib.Path(launcher.words[0]).parents[1])
            option = {"rlaunch": ("-H",), "hydra": ("-hosts",), "prterun": ("--prefix", prefix, "--host")}[name]
            found[name] = launcher.with_words(name, *option, listed)
        return found

    def bench(self, count, slots=1):
        """The same benchmark for rows that know nothing of hosts: its clock runs on login, its launchers use the hosts."""
        return dataclasses.replace(self.own_bench, clock=Inside(self), launchers=self.launchers(count, slots),
                                   scratch=str(self.scratch))

    def living(self):
        """Processes on the hosts now, without those of the testbed, of sshd, and of login."""
        return {pid for pid in procs.descendants(self.holder.pid) if not procs.name(pid).startswith(("tb-", "sshd"))}

    def wait_for_sessions(self, seconds=10):
        """Waits for the end of sessions that outlive their command: they would slow the next sample down."""
        deadline = time.monotonic() + seconds
        while procs.descendants(self.holder.pid) - self.resting and time.monotonic() < deadline:
            time.sleep(0.01)

    def clear(self):
        """Ends processes that a failed sample has left on the hosts."""
        procs.kill(self.living())

    def job(self, command, token):
        """A launcher on login that keeps running."""
        self.up()
        return FarJob(self, command, token)


class Inside(Clock):
    """The clock, on the login host."""

    def __init__(self, hosts):
        super().__init__({"timed": str(hosts.timed)})
        self.hosts = hosts

    def line(self, words):
        self.hosts.up()
        return self.hosts.exec(*words), self.hosts.environ

    def run(self, *words, **how):
        sample = super().run(*words, **how)
        if sample.failure:
            self.hosts.clear()
        return sample


class FarJob(procs.Job):
    """A job whose processes are below the hosts' sshd as well as below its launcher."""

    def __init__(self, hosts, command, token):
        self.hosts = hosts
        super().__init__(hosts.exec(*command), token, environ=hosts.environ)

    @property
    def launcher(self):
        """The launcher is the child of the command that entered the host."""
        return min(procs.children(self.process.pid), default=self.process.pid)

    def below(self):
        return super().below() | self.hosts.living()


def are_possible(bench, row):
    """Whether there can be a testbed: only root can make one. Prints a note if not."""
    if os.geteuid() == 0 and "rlaunch" in bench.launchers:
        return True
    print(f"{row}: absent: a testbed needs root, and the row rlaunch", file=sys.stderr)
    return False


def of(bench, row):
    """The hosts, one testbed for all rows; None, with a note, where there can be none."""
    if not are_possible(bench, row):
        return None
    if bench.hosts is None:
        bench.hosts = Hosts(bench)
    return bench.hosts
