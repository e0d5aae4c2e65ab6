"""ssh: how long a job takes that does nothing, on hosts reached over ssh; the floor is as many bare `ssh HOST true` at a time.
rlaunch, fast (--ssh-fast): the hosts have the agent's binary. cold: it is sent."""

from functools import partial

from .. import hosts as testbed
from ..case import Case, Goal
from ..measure import Sample

COUNTS = (1, 4, 16)
LIMITS = {"rlaunch": (1.1, 1.1), "fast": (0.75, 0.5)}
"""The contender -> times the floor for one host, and for 16."""
PEERS_FROM = 4
SECONDS = 15


def _sample(hosts, command, cold=False):
    hosts.up()
    if cold:
        hosts.do("sh", "-c", "rm -rf ~/.cache/rlaunch")
    hosts.wait_for_sessions()
    sample = testbed.Inside(hosts).milliseconds(command, seconds=SECONDS)
    # A job that does not end is at least so slow. It counts in the median too, so a hang cannot improve the figure.
    return Sample(SECONDS * 1e3, sample.failure) if sample.timed_out else sample


def _commands(hosts, count):
    names = [f"node{i}" for i in range(count)]
    commands = {"ssh": ["ssh", *names, "true"]}
    if count > 1:
        commands["ssh"] = ["sh", "-c", " ".join(f"ssh {name} true &" for name in names) + " wait"]
    for name, launcher in hosts.launchers(count).items():
        if name == "rlaunch" or count >= PEERS_FROM:
            commands[name] = launcher.command(count, ["/bin/true"])
        if name == "rlaunch":
            commands["fast"] = launcher.with_words("fast", "--ssh-fast").command(count, ["/bin/true"])
    return commands


def _case(hosts, count):
    commands = _commands(hosts, count)
    contenders = {name: partial(_sample, hosts, command) for name, command in commands.items()}
    contenders["cold"] = partial(_sample, hosts, commands["rlaunch"], cold=True)
    goals = []
    if count in (COUNTS[0], COUNTS[-1]):
        goals = [Goal(limits[count > 1], "ssh", who=who) for who, limits in LIMITS.items()]
    goals += [Goal(1, peer) for peer in ("hydra", "prterun") if peer in commands]
    return Case(f"ssh, {count} host" + "s" * (count > 1), "ms", contenders, floor="ssh", goals=tuple(goals))


def cases(bench):
    """Time of a job that does nothing on 1, 4 and 16 hosts."""
    hosts = testbed.of(bench, "ssh")
    return [_case(hosts, count) for count in COUNTS if count <= bench.size(16, 4)] if hosts else []
