"""Accounts: /etc and the homes that the hosts of a testbed see, made once, as layers above the machine's own.

Nothing here touches the machine: all of it is written into the fabric's memory."""

import os
import pathlib
import shutil
import subprocess
import uuid

from . import linux, slurm

USER, UID = "tester", 2000
"""The ordinary user, without a password. The user's key opens only this account, on all hosts."""

STATE = "/run/testbed"
"""Seen by the fabric only: hosts have a /run of their own."""

SSHD = """\
# The testbed's own: quick, and patient with many logins at once. `up --stock-sshd` takes the distribution's instead.
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
MaxStartups 1000
PrintMotd no
# The hosts have no ::1, which sshd insists on for a listener on localhost.
X11Forwarding yes
X11UseLocalhost no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""

SSH = """\
Host *
    SendEnv LANG LC_*
    HashKnownHosts yes
"""


def _write(path, text, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _table(name, own):
    """A table of /etc with our user, and without other entries of the same name or number."""
    path = pathlib.Path("/etc") / name
    lines = path.read_text().splitlines() if path.exists() else []
    number = {"passwd": 2, "group": 2}.get(name)
    kept = []
    for line in lines:
        fields = line.split(":")
        if fields[0] in (USER, "+") or number and fields[number:number + 1] == [str(UID)]:
            continue
        if name == "shadow" and fields[0] == "root":
            # An account that is locked is refused by sshd, key or not.
            line = ":".join(["root", "*"] + fields[2:])
        kept.append(line)
    return "\n".join([*kept, own, ""])


def root_home():
    """Root's home on this machine."""
    return os.path.realpath(os.path.expanduser("~root"))


def _make_keys(keys):
    keys.mkdir()
    calls = [["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{name}@testbed", "-f", str(keys / name)]
             for name in ("host", "root", USER)]
    running = [subprocess.Popen(call, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) for call in calls]
    for call, process in zip(calls, running):
        words = process.communicate()[1]
        if process.returncode:
            raise OSError(f"{' '.join(call)}: {words.decode(errors='replace').strip()}")


def _make_etc(plan, etc, keys):
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    _write(etc / "passwd", _table("passwd", f"{USER}:x:{UID}:{UID}:an ordinary user:/home/{USER}:{shell}"))
    _write(etc / "group", _table("group", f"{USER}:x:{UID}:"))
    _write(etc / "shadow", _table("shadow", f"{USER}:*:19000:0:99999:7:::"), 0o600)
    _write(etc / "hosts", "127.0.0.1 localhost\n" + "".join(f"{h.address} {h.name}\n" for h in plan.hosts()))
    _write(etc / "nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\n")
    _write(etc / "resolv.conf", "# there is nobody to ask\n")
    ssh = etc / "ssh"
    _write(ssh / "ssh_config", SSH)
    _write(ssh / "ssh_known_hosts", "* " + (keys / "host.pub").read_text())
    if not plan.stock_sshd:
        _write(ssh / "sshd_config", SSHD)
        linux.hide_below(ssh)
    for kind in ("rsa", "ecdsa"):
        # The machine's own keys must not be visible; a whiteout hides a file of a lower layer.
        os.mknod(ssh / f"ssh_host_{kind}_key", 0o000, os.makedev(0, 0))
    shutil.copy(keys / "host", ssh / "ssh_host_ed25519_key")
    shutil.copy(keys / "host.pub", ssh / "ssh_host_ed25519_key.pub")
    (ssh / "ssh_host_ed25519_key").chmod(0o600)


def _make_home(home, key, owner, bashrc):
    ssh = home / ".ssh"
    ssh.mkdir(parents=True)
    ssh.chmod(0o700)
    linux.hide_below(ssh)
    for suffix, name in (("", "id_ed25519"), (".pub", "id_ed25519.pub"), (".pub", "authorized_keys")):
        shutil.copy(f"{key}{suffix}", ssh / name)
        (ssh / name).chmod(0o600)
    if not bashrc:
        _write(home / ".bashrc", "")
    home.chmod(0o700)
    for path in (home, *home.rglob("*")):
        os.chown(path, owner, owner)


def prepare(plan):
    """Makes the layers; run by the fabric, in its own mount namespace."""
    state = pathlib.Path(STATE)
    keys = state / "keys"
    _make_keys(keys)
    _make_etc(plan, state / "etc", keys)
    if plan.slurm:
        slurm.prepare(plan, state / "etc")
    _make_home(state / "root", keys / "root", 0, plan.bashrc)
    _make_home(state / "home" / USER, keys / USER, UID, False)
    for host in plan.hosts():
        own = state / "hosts" / host.name / "etc"
        _write(own / "hostname", host.name + "\n")
        _write(own / "machine-id", uuid.uuid4().hex + "\n", 0o444)


def homes():
    """(where, layer) of each tree of homes. One that is not there on this machine has no lower layer."""
    return ((root_home(), "root"), ("/home", "home"))
