"""Plan of a testbed: its options, and the names and addresses of its hosts."""

import dataclasses

LIMIT = 1000
"""A bridge has 1024 ports."""


@dataclasses.dataclass(frozen=True)
class Host:
    """One host, on or off."""

    name: str
    address: str
    number: int

    @property
    def mac(self):
        """A fixed address, so that caches of neighbours stay valid when the host is started again."""
        return f"02:4d:00:00:{self.number >> 8:02x}:{self.number & 255:02x}"

    @property
    def port(self):
        """The fabric's end of the host's cable."""
        return f"port-{self.name}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """The options of `up`."""

    name: str
    count: int
    cwd: str
    shares: tuple = ()
    stock_sshd: bool = False
    bashrc: bool = False
    private_homes: bool = False
    tpu: int = 0
    slurm: bool = False
    cpus: int = 4
    cgroup: bool = False
    top: str = ""
    """The directory of its control groups, once it is made."""

    def hosts(self):
        """login, node0, node1 …"""
        found = [Host("login", "10.77.0.1", 1)]
        for i in range(self.count):
            found.append(Host(f"node{i}", f"10.77.{1 + i // 250}.{1 + i % 250}", 256 + i))
        return found
