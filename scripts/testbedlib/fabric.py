"""The process that a testbed hangs on: it holds the network, starts and ends hosts, and answers the commands."""

import contextlib
import dataclasses
import gc
import json
import os
import select
import signal
import socket
import time

from . import accounts, cgroups, channel, host, inside, linux, relay, slurm, tree, wires


@dataclasses.dataclass
class _Life:
    """A host that is on."""

    pid: int
    daemons: dict
    words: host.Words
    frozen: object = None
    died: list = dataclasses.field(default_factory=list)


class Fabric:
    """State and commands. A command is a method `do_…` that returns (answer, descriptor)."""

    def __init__(self, plan, shares):
        self.plan = plan
        self.shares = shares
        self.hosts = {h.name: h for h in plan.hosts()}
        self.lives = {}
        self.cuts = []
        self.relays = {}
        self.alarm = os.pipe()
        self.own_pid_space = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def start(self, names):
        """Starts hosts, all at once."""
        rising = {name: host.spawn(self.plan, self.hosts[name], self.shares, self.own_pid_space) for name in names}
        failures = []
        try:
            failures += [self._word(name, rise, "spawned") for name, rise in rising.items()]
            if not any(failures):
                failures.append(self._lay_cables(rising))
            for rise in rising.values():
                rise.order()
            # A host that died while its cable was laid has better words for it than the cable.
            failures = [self._word(name, rise, "ready") for name, rise in rising.items()] + failures
            if self.plan.slurm and not any(failures):
                failures += self._start_slurm(rising)
        finally:
            for name, rise in rising.items():
                rise.close()
                if any(failures):
                    self._end(name, rise.pid)
                    rise.words.close()
        for failure in failures:
            if failure:
                raise channel.Refused(failure)

    def _lay_cables(self, rising):
        try:
            wires.lay_cables([(self.hosts[name], rise.pid) for name, rise in rising.items()], self._bridge_of)
        except OSError as error:
            return f"the cables could not be laid: {error}"
        return None

    def _word(self, name, rise, wanted):
        try:
            rest = rise.word(wanted)
        except host.Failed as failure:
            return f"{name} did not come up: {failure}"
        if wanted == "ready":
            self.lives[name] = _Life(rise.pid, rest, rise.words)
        elif wanted == "serving":
            self.lives[name].daemons.update(rest)
        return None

    def _start_slurm(self, rising):
        """slurmd, where slurmctld can be found by now; returns failures."""
        since = slurm.now() if "login" not in rising else ""
        nodes = {name: rise for name, rise in rising.items() if name != "login"}
        for rise in nodes.values():
            rise.order()
        failures = [self._word(name, rise, "serving") for name, rise in nodes.items()]
        # A slurmctld that has just started has all nodes to find.
        wanted = [name for name in self.lives if name != "login"] if "login" in rising else nodes
        reached = [name for name in wanted if not any(cut.concerns(name) or cut.concerns("login") for cut in self.cuts)]
        if any(failures) or "login" not in self.lives or not reached:
            return failures
        return [self._wait_for_nodes(reached, since)]

    def _wait_for_nodes(self, nodes, since):
        """Waits until slurmctld has these nodes in service; returns a failure."""
        end = time.monotonic() + slurm.REGISTERED_WITHIN
        login = os.pidfd_open(self.lives["login"].pid)
        try:
            while True:
                absent = inside.call(login, slurm.absent_nodes, nodes, since)
                died = self.note_deaths()
                if died or not absent:
                    return "\n".join(died) or None
                if time.monotonic() >= end:
                    name, state = next(iter(absent.items()))
                    return (f"{name} is not in service after {slurm.REGISTERED_WITHIN} s ({len(absent)} of {len(nodes)} such); "
                            f"its state: {state}")
                time.sleep(0.01)
        finally:
            os.close(login)

    def death_descriptors(self):
        """Descriptors that are ready when a daemon has died."""
        return [life.words.fd for life in self.lives.values()] if self.plan.slurm else []

    def note_deaths(self):
        """Takes note of the daemons that have died, and rings the alarm; returns all such reports of hosts that are on."""
        for name, life in self.lives.items():
            while self.plan.slurm and (line := life.words.next(wait=False)):
                report = json.loads(line[len("died "):])
                life.died.append(f"{report['name']} on {name} has died ({report['how']}):\n{report['log']}")
                life.daemons.pop(report["name"])
                # The close notifies all commands that wait at the other end.
                os.close(self.alarm[1])
                os.close(self.alarm[0])
                self.alarm = os.pipe()
        return [text for life in self.lives.values() for text in life.died]

    def _end(self, name, pid):
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            # Init is the last of its namespace: when it is reaped, all of the host is gone.
            while not os.waitpid(pid, os.WNOHANG if self.plan.cgroup else 0)[0]:
                cgroups.thaw(self.plan.top, name)
                time.sleep(0.005)
        if self.plan.cgroup:
            cgroups.remove(self.plan.top, name)
        self._forget(name)

    def _forget(self, name):
        life = self.lives.pop(name, None)
        if life:
            life.words.close()

    def reap(self):
        """Takes note of whatever ended by itself."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                for name in [name for name, life in self.lives.items() if life.pid == pid]:
                    self._forget(name)
                for name in [name for name, each in self.relays.items() if each.pid == pid]:
                    del self.relays[name]

    def _host(self, name):
        if name not in self.hosts:
            last = self.plan.count - 1
            raise channel.Refused(f"there is no host {name!r}: there are login" + (f" and node0 to node{last}" if last >= 0 else ""))
        return self.hosts[name]

    def _life(self, name):
        self._host(name)
        if name not in self.lives:
            raise channel.Refused(f"{name} is off: `testbed start-host {name}`")
        return self.lives[name]

    def _bridge_of(self, which):
        return self.relays[which.name].bridge if which.name in self.relays else wires.BRIDGE

    def _port_of(self, name):
        return self.relays[name].outer if name in self.relays else self.hosts[name].port

    # Commands.

    def do_look(self, names):
        """The state of hosts (none named: all), one after the other with a way in to the first."""
        chosen = names or list(self.hosts)
        states = []
        for name in chosen:
            self._host(name)
            life = self.lives.get(name)
            states.append({"name": name, "address": self.hosts[name].address, "up": life is not None,
                           "frozen": life is not None and life.frozen is not None, "daemons": life.daemons if life else {}})
        first = self.lives.get(chosen[0])
        return {"hosts": states, "slurm": self.plan.slurm}, os.pidfd_open(first.pid) if first else None

    def do_alarm(self):
        """Daemons that have died, and a descriptor whose other end closes when the next one does."""
        return {"died": self.note_deaths()}, os.dup(self.alarm[0])

    def do_strays(self):
        """Processes beside the hosts, without the fabric and its relays."""
        own = os.readlink("/proc/self/ns/pid")
        known = {os.getpid(), *(each.pid for each in self.relays.values())}
        found = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdigit() and int(entry) not in known and os.readlink(f"/proc/{entry}/ns/pid") == own:
                    with open(f"/proc/{entry}/comm", encoding="utf-8", errors="replace") as comm:
                        found.append([int(entry), "root", "?", f"[{comm.read().strip()}]"])
        return {"strays": found}, None

    def do_kill_host(self, name, fin):
        """A power cut. With `fin` the processes die first, and the kernel still says goodbye for them."""
        life = self._life(name)
        if not fin:
            wires.pull_cable(self.hosts[name])
        self._end(name, life.pid)
        if fin:
            # The cable went with the host's network, or goes soon.
            with contextlib.suppress(OSError):
                wires.pull_cable(self.hosts[name])
        return {}, None

    def do_start_host(self, name):
        """Power again: same name, addresses and disk, another boot."""
        self._host(name)
        if name in self.lives:
            raise channel.Refused(f"{name} is on already")
        self.start([name])
        return {}, None

    def do_cut(self, host_name, peer, arp, to_host, from_host):
        """A partition, silent in the directions named."""
        self._host(host_name)
        if peer:
            self._host(peer)
        self.cuts.append(wires.Cut(host_name, peer, arp, to_host, from_host))
        wires.cut(self.cuts, self._port_of)
        return {}, None

    def do_heal(self, name):
        """Ends the partitions of a host, or all."""
        if name:
            self._host(name)
        self.cuts = [each for each in self.cuts if name and not each.concerns(name)]
        wires.cut(self.cuts, self._port_of)
        return {}, None

    def do_slow(self, name, changes, to_host, from_host):
        """Delay, loss, rate of a cable, in the directions named."""
        which = self._host(name)
        old = self.relays.get(name)
        ways = [old.to_host, old.from_host] if old else [relay.Way(), relay.Way()]
        for at, chosen in enumerate((to_host, from_host)):
            if chosen:
                ways[at] = dataclasses.replace(ways[at], **changes)
        plain = all(way.is_plain for way in ways)
        if plain and not old:
            return {}, None
        if not old:
            self.relays[name] = old = relay.Relay(which)
        old.order(*ways)
        if plain:
            del self.relays[name]
        if name in self.lives:
            wires.ip(f"link set {which.port} master {self._bridge_of(which)}")
        # The cuts name devices of the bridge, of which the host now has another.
        wires.cut(self.cuts, self._port_of)
        if plain:
            old.end()
        return {}, None

    def do_freeze(self, name):
        """Suspends all processes of the host. Its kernel continues."""
        life = self._life(name)
        if life.frozen is None:
            fd = os.pidfd_open(life.pid)
            life.frozen = inside.call(fd, inside.freeze)
            os.close(fd)
            os.kill(life.pid, signal.SIGSTOP)
        return {}, None

    def do_thaw(self, name):
        """Resumes the processes that ran before."""
        life = self._life(name)
        if life.frozen is not None:
            os.kill(life.pid, signal.SIGCONT)
            fd = os.pidfd_open(life.pid)
            inside.call(fd, inside.thaw, life.frozen)
            os.close(fd)
            life.frozen = None
        return {}, None

    def answer(self, request):
        """The answer to one request, whatever happens."""
        words = dict(request)
        command = getattr(self, "do_" + words.pop("do"))
        try:
            return command(**words)
        except (channel.Refused, OSError, ValueError) as error:
            return {"refused": str(error)}, None


def _prepare(plan):
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    opened = tree.open_shares(plan)
    linux.tmpfs("/run", 0o755)
    os.mkdir(accounts.STATE, 0o755)
    linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    socket.sethostname(f"tb-{plan.name}"[:64])
    shares = tree.keep_shares(opened)
    accounts.prepare(plan)
    tree.cover_homes(plan)
    wires.make_fabric()
    return shares


def _serve(fabric, listener, bell):
    while True:
        waiting = select.poll()
        for fd in (listener, bell, *fabric.death_descriptors()):
            waiting.register(fd, select.POLLIN)
        ready = {fd for fd, _ in waiting.poll()}
        if bell.fileno() in ready:
            bell.recv(4096)
        fabric.note_deaths()
        if listener.fileno() in ready:
            # A client that went away, or sent nonsense, is its own affair.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                channel.serve(listener.accept()[0], fabric.answer)
        fabric.reap()


def run(plan, listener, report, locks):
    """The life of the fabric's process, in namespaces of its own; never returns. Writes one line to `report`, keeps `locks`."""
    try:
        os.chdir("/")
        os.umask(0o022)
        nowhere = os.open("/dev/null", os.O_RDWR)
        for fd in range(3):
            os.dup2(nowhere, fd)
        linux.close_all_but((listener.fileno(), report, *locks))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        bell, ring = socket.socketpair()
        ring.setblocking(False)
        signal.set_wakeup_fd(ring.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        linux.name_me(f"tb-fabric:{plan.name}")
        # Objects so far are frozen, so that forks share their pages.
        gc.collect()
        gc.freeze()
        shares = _prepare(plan)
        fabric = Fabric(plan, shares)
        fabric.start(list(fabric.hosts))
        # Only now does the name answer: a testbed is there whole or not at all.
        listener.listen(64)
        os.write(report, b"ready\n")
        os.close(report)
        _serve(fabric, listener, bell)
    except BaseException as error:  # pylint: disable=broad-except
        os.write(report, f"{error}".replace("\n", "\v").encode() + b"\n")
    finally:
        os._exit(1)
