"""ssh: how long a job takes that does nothing, on hosts of a testbed reached over ssh; the floor is as many bare `ssh HOST true`
at a time. Warm: the hosts have the agent's binary. Cold: it is sent. All hosts share their homes, and the machine's processors."""

import atexit
import os
import pathlib
import shutil
import subprocess
import sys
from functools import partial

from ..case import Case, Goal
from ..measure import Clock

TESTBED = pathlib.Path(__file__).resolve().parents[2] / "testbed"
COUNTS = (1, 4, 16)
LIMITS = {"rlaunch": (1.1, 1.1), "fast": (0.75, 0.5)}
"""The contender -> times the floor for one host, and for 16."""


class Hosts:
    """A testbed that comes up with the first sample, and goes with us."""

    def __init__(self, bench):
        self.scratch = pathlib.Path(bench.scratch) / "hosts"
        self.environ = dict(os.environ, TESTBED_NAME=f"bench-{os.getpid()}")
        self.holder = None
        # Under a name that no remote line can hold: where it lies here it is not looked for there.
        self.rlaunch = self.scratch / "o'dd" / "rlaunch"
        self.timed = self.scratch / "timed"
        self.rlaunch.parent.mkdir(parents=True)
        shutil.copy(bench.launchers["rlaunch"].words[0], self.rlaunch)
        shutil.copy(bench.programs["timed"], self.timed)
        self.scratch.parent.chmod(0o755)

    def up(self):
        """Makes it, once."""
        if self.holder:
            return
        line = [TESTBED, "up", str(max(COUNTS)), "--hold", "--share", self.scratch]
        # pylint: disable-next=consider-using-with
        self.holder = subprocess.Popen(line, env=self.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            sys.exit("bench: the testbed did not come up")
        atexit.register(self.holder.kill)

    def exec(self, *words):
        """The words that run a command on the login host."""
        return [sys.executable, str(TESTBED), "exec", "--cwd", "/", "login", *map(str, words)]

    def sample(self, command, cold=False):
        """One sample, timed on the login host."""
        self.up()
        if cold:
            subprocess.run(self.exec("sh", "-c", "rm -rf ~/.cache/rlaunch"), env=self.environ, check=True)
        return Inside(self).milliseconds(command, seconds=15)


class Inside(Clock):
    """The clock, on the login host."""

    def __init__(self, hosts):
        super().__init__({"timed": str(hosts.timed)})
        self.hosts = hosts

    def line(self, words):
        return self.hosts.exec(*words), self.hosts.environ


def _commands(hosts, bench, count):
    names = [f"node{i}" for i in range(count)]
    listed = ",".join(names)
    bare = "; ".join(f"ssh {name} true &" for name in names).replace("&;", "&")
    ours = [hosts.rlaunch, "-n", count, "-H", listed]
    commands = {
        "ssh": ["sh", "-c", f"{bare} wait"] if count > 1 else ["ssh", *names, "true"],
        "rlaunch": [*ours, "/bin/true"],
        "fast": [*ours, "--ssh-fast", "/bin/true"],
    }
    # What peers need on the hosts lies there at the same path as here; PATH does not lead to it.
    for name, option, more in (("hydra", "-hosts", ()), ("prterun", "--host", ("--prefix",))):
        if count >= 4 and name in bench.launchers:
            peer = bench.launchers[name]
            prefix = [pathlib.Path(peer.words[0]).parents[1]] if more else []
            commands[name] = peer.with_words(name, option, listed, *more, *map(str, prefix)).command(count, ["/bin/true"])
    return commands


def _case(hosts, bench, count):
    commands = _commands(hosts, bench, count)
    contenders = {name: partial(hosts.sample, command) for name, command in commands.items()}
    contenders["cold"] = partial(hosts.sample, commands["rlaunch"], cold=True)
    goals = []
    if count in (1, 16):
        goals = [Goal(limits[count > 1], "ssh", who=who) for who, limits in LIMITS.items()]
    goals += [Goal(1, peer) for peer in ("hydra", "prterun") if peer in commands]
    return Case(f"ssh, {count} host" + "s" * (count > 1), "ms", contenders, floor="ssh", goals=tuple(goals))


def cases(bench):
    """The cases of the row: none without root, who alone can make a testbed, and none without rlaunch."""
    if os.geteuid() != 0 or "rlaunch" not in bench.launchers:
        print("ssh: absent: a testbed needs root, and the row rlaunch", file=sys.stderr)
        return []
    hosts = Hosts(bench)
    return [_case(hosts, bench, count) for count in COUNTS if count <= bench.size(16, 4)]
