"""The fabric's network: a bridge, a cable to each host, and the rules that cut cables without a word to either end."""

import dataclasses
import subprocess

BRIDGE = "fabric"


def run(command, text=None):
    """A network tool, with its own words in the error."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def ip(*lines):
    """Lines of `ip`, in one call."""
    run(["ip", "-batch", "-"], "\n".join(lines) + "\n")


def make_bridge(name):
    """A bridge that forwards at once and floods everything it does not know."""
    ip(f"link add {name} type bridge stp_state 0 mcast_snooping 0", f"link set {name} up")


def make_fabric():
    """The bridge and the table of rules. No address, no route: nothing leads outside."""
    for name in ("all", "default"):
        try:
            with open(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6", "w", encoding="ascii") as file:
                file.write("1")
        except OSError:
            pass  # a kernel without IPv6
    ip("link set lo up")
    make_bridge(BRIDGE)
    cut(())


def lay_cables(pairs, bridge_of):
    """Cables between the bridge and hosts: (host, pid of its init)."""
    lines = []
    for host, pid in pairs:
        lines.append(f"link add {host.port} type veth peer name eth0 address {host.mac} netns {pid}")
        lines.append(f"link set {host.port} master {bridge_of(host)} up")
    ip(*lines)


def pull_cable(host):
    """Removes a cable with the device of the host. Frames that the host still sends are lost."""
    ip(f"link del {host.port}")


@dataclasses.dataclass(frozen=True)
class Cut:
    """Cut between a host and a peer (None: all hosts)."""

    host: str
    peer: str = None
    arp: bool = False
    to_host: bool = True
    from_host: bool = True

    def concerns(self, name):
        """Whether healing this host removes the cut."""
        return name in (self.host, self.peer)

    def rules(self, port_of):
        """nft's words."""
        what = "" if self.arp else "ether type != arp "
        host, peer = port_of(self.host), self.peer and port_of(self.peer)
        if self.to_host:
            yield f"{what}" + (f'iifname "{peer}" ' if peer else "") + f'oifname "{host}" drop'
        if self.from_host:
            yield f"{what}" + f'iifname "{host}" ' + (f'oifname "{peer}" ' if peer else "") + "drop"


def cut(cuts, port_of=None):
    """Makes exactly these cuts, in one step. Frames vanish without an error."""
    lines = ["table bridge testbed {}", "delete table bridge testbed", "table bridge testbed {",
             "chain forward { type filter hook forward priority 0; policy accept;"]
    lines += [rule for each in cuts for rule in each.rules(port_of)]
    run(["nft", "-f", "-"], "\n".join([*lines, "}", "}", ""]))
