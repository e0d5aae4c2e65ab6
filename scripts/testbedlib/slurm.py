"""Slurm on the hosts: munged on each, slurmctld on login, slurmd on the nodes, with one configuration for all."""

import datetime
import os
import subprocess

from . import cgroups, daemons

NEEDED = (("/usr/sbin/munged", "munge"), ("/usr/sbin/slurmctld", "slurmctld"), ("/usr/sbin/slurmd", "slurmd"),
          ("srun", "slurm-client"))
"""Programs, and the packages that bring them."""
CTLD_PORT, SLURMD_PORT = 6817, 6818
MUNGE_SOCKET, LISTENS = "/run/munge/munge.socket.2", "00010000"
JOBS = "/run/slurm/ctld"
"""The state of slurmctld. It is kept on the host's disk: jobs are still known after a power cut of login."""
REGISTERED_WITHIN = 30
"""Seconds that a node has to register with slurmctld, and slurmctld to accept it."""
ANSWER_WITHIN = 5
"""Seconds that a command of Slurm has for an answer, before it is asked again."""

CONF = """\
ClusterName=testbed
SlurmctldHost=login(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# A requeued job waits for the end of its credential before it starts again. The default is 120 s.
AuthInfo=cred_expire=10
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
StateSaveLocation={jobs}
SlurmdSpoolDir=/run/slurm/d
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=20
SlurmctldTimeout=20
InactiveLimit=0
KillWait=5
WaitTime=0
MinJobAge=60
# Jobs of several components need the backfill scheduler.
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,bf_hetjob_immediate
PropagateResourceLimits=NONE
{plugins}
NodeName=node[0-{last}] CPUs={cpus} State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""

PLAIN = """\
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectTypeParameters=CR_CPU"""

GROUPED = """\
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
SelectTypeParameters=CR_CPU"""

CGROUP_CONF = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint={mount}
CgroupAutomount=no
ConstrainCores=yes
ConstrainRAMSpace=no
ConstrainSwapSpace=no
ConstrainDevices=no
"""


def prepare(plan, etc):
    """Writes the configuration and the key for all hosts, into their layer of /etc."""
    slurm, munge = etc / "slurm", etc / "munge"
    slurm.mkdir(parents=True)
    plugins = GROUPED if plan.cgroup else PLAIN
    (slurm / "slurm.conf").write_text(CONF.format(jobs=JOBS, plugins=plugins, last=plan.count - 1, cpus=plan.cpus))
    if plan.cgroup:
        (slurm / "cgroup.conf").write_text(CGROUP_CONF.format(mount=cgroups.MOUNT))
    munge.mkdir(mode=0o700)
    (munge / "munge.key").write_bytes(os.urandom(1024))
    (munge / "munge.key").chmod(0o400)


def start_munged():
    """Starts munged, which every other part needs."""
    for path in ("/run/munge", "/run/slurm/d"):
        os.makedirs(path, exist_ok=True)
    return daemons.start("munged", ["/usr/sbin/munged", "--foreground", "--force", "--num-threads=2",
                                    "--pid-file=/run/munge/munged.pid", "--seed-file=/run/munge/munged.seed"])


def wait_for_munged(daemon):
    """Waits until munged accepts connections."""
    daemons.wait_for(daemon, _munge_listens, f"listen on {MUNGE_SOCKET}")


def _munge_listens():
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as table:
        return any(line.split()[3] == LISTENS for line in table if line.rstrip().endswith(" " + MUNGE_SOCKET))


def start_slurmctld():
    """Starts slurmctld, and waits until it listens."""
    daemon = daemons.start("slurmctld", ["/usr/sbin/slurmctld", "-D"])
    daemons.wait_for_port(daemon, CTLD_PORT)
    return daemon


def start_slurmd(name):
    """Starts slurmd, which reports a boot of its node, and waits until it listens."""
    daemon = daemons.start("slurmd", ["/usr/sbin/slurmd", "-D", "-b", "-N", name])
    daemons.wait_for_port(daemon, SLURMD_PORT)
    return daemon


# The rest runs on login, called by the fabric.

def _ask(*words):
    """The output of a command of Slurm, or None: it failed, or took too long."""
    try:
        done = subprocess.run(words, env={"PATH": daemons.PATH, "TZ": "UTC", "LANG": "C.UTF-8"}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=ANSWER_WITHIN, check=False)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


def absent_nodes(names, since):
    """Nodes of these that slurmctld does not have in service, or not since that second: {name: state}."""
    text = _ask("scontrol", "--oneliner", "show", "node")
    if text is None:
        return dict.fromkeys(names, "unknown, slurmctld does not answer")
    found = {}
    for line in text.splitlines():
        facts = dict(word.split("=", 1) for word in line.split() if "=" in word)
        started = facts.get("SlurmdStartTime", "None")
        # A state with a star is that of a node which does not respond.
        sound = facts["State"].split("+")[0] in ("IDLE", "MIXED", "ALLOCATED")
        found[facts["NodeName"]] = None if sound and started not in ("None", "Unknown") and started >= since else facts["State"]
    return {name: found.get(name, "not configured") for name in names if found.get(name, "not configured")}


def now():
    """This second, as Slurm writes it."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def running_jobs():
    """Numbers of the jobs whose processes have a right to live; None if slurmctld does not answer."""
    text = _ask("squeue", "--noheader", "--states=RUNNING,SUSPENDED,CONFIGURING,STOPPED", "--format=%A")
    return None if text is None else [int(word) for word in text.split()]

