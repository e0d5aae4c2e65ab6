"""File system of a host: the machine's own, with private directories where real hosts differ."""

import os
import stat
import uuid

from . import accounts, cgroups, linux, slurm

PRIVATE = (("/run", 0o755), ("/tmp", 0o1777), ("/var/tmp", 0o1777))
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def open_shares(plan):
    """Folders that stay visible, of `up` and --share: {path: descriptor}. The fabric runs this before it covers any directory."""
    chosen = {}
    for path in dict.fromkeys([plan.cwd, *plan.shares]):
        path = os.path.realpath(path)
        # A folder with a covered directory in it cannot be shown again without uncovering that.
        if any(_is_within(path, covered) for covered in _covered()) and \
                not any(_is_within(covered, path) for covered in _covered()):
            chosen[path] = linux.path_fd(path)
    return chosen


def keep_shares(chosen):
    """Mounts them where the hosts find them: what is open in one mount namespace cannot be mounted in another. [(path, way)]"""
    found = []
    for path, fd in chosen.items():
        way = f"{accounts.STATE}/shares/{len(found)}"
        _make_place(way, os.path.isdir(f"/proc/self/fd/{fd}"))
        linux.bind(fd, way)
        os.close(fd)
        found.append((path, way))
    return found


def _make_place(path, is_dir):
    os.makedirs(path if is_dir else os.path.dirname(path), exist_ok=True)
    if not is_dir and not os.path.exists(path):
        os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600))


def _covered():
    return [path for path, _ in PRIVATE] + ["/dev"] + [path for path, _ in accounts.homes()]


def _is_within(path, top):
    return path == top or path.startswith(top.rstrip("/") + "/")


def cover_homes(plan, host=None):
    """Homes: what is written stays in memory. One for all hosts, as over NFS, or one for each."""
    for where, layer in accounts.homes():
        if not os.path.isdir(where):
            continue
        if host is None and not plan.private_homes:
            linux.overlay(where, [where], f"{accounts.STATE}/{layer}", f"{accounts.STATE}/work-{layer}")
        elif host is not None and plan.private_homes:
            own, common = f"{accounts.STATE}/hosts/{host.name}/{layer}", f"{accounts.STATE}/{layer}"
            if not os.path.isdir(own):
                os.makedirs(own)
                os.chmod(own, stat.S_IMODE(os.stat(common).st_mode))
            linux.overlay(where, [common, where], own, own + ".work")


def _devices(plan):
    linux.mount("tmpfs", "/dev", "tmpfs", linux.MS_NOSUID | linux.MS_NOEXEC, "mode=755")
    made = [(name, numbers) for name, numbers in DEVICES.items()]
    # A null device in place of each: who holds one open shows in /proc/PID/fd.
    made += [(f"{kind}{i}", (1, 3)) for i in range(plan.tpu) for kind in ("vfio/", "accel")]
    for name, numbers in made:
        os.makedirs(os.path.dirname(f"/dev/{name}"), exist_ok=True)
        os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(*numbers))
        os.chmod(f"/dev/{name}", 0o666)
    for link, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"),
                         ("ptmx", "pts/ptmx")):
        os.symlink(target, f"/dev/{link}")
    os.mkdir("/dev/pts")
    linux.mount("devpts", "/dev/pts", "devpts", linux.MS_NOSUID | linux.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5")
    linux.tmpfs("/dev/shm", 0o1777)


def _proc(boot_id):
    linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    # One without anything on top of it: the kernel lets an ordinary user's namespace mount /proc only where it finds such.
    os.makedirs("/run/testbed/proc")
    linux.mount("proc", "/run/testbed/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    linux.bind(boot_id, BOOT_ID)


def build(plan, host, shares):
    """Makes the file system of a host; run by its init, in namespaces of its own."""
    own = f"{accounts.STATE}/hosts/{host.name}"
    with open(f"{own}/boot_id", "w", encoding="ascii") as file:
        file.write(f"{uuid.uuid4()}\n")
    os.chmod(f"{own}/boot_id", 0o444)
    boot_id = linux.path_fd(f"{own}/boot_id")
    groups = linux.path_fd(cgroups.MOUNT) if os.path.isdir(cgroups.MOUNT) else None
    opened = [(path, linux.path_fd(way)) for path, way in shares]
    if plan.slurm and host.name == "login":
        os.makedirs(f"{own}/jobs", exist_ok=True)
        opened.append((slurm.JOBS, linux.path_fd(f"{own}/jobs")))
    cover_homes(plan, host)
    linux.overlay("/etc", [f"{accounts.STATE}/etc", "/etc"], f"{own}/etc", f"{own}/etc.work")
    for path, mode in PRIVATE:
        if not os.path.islink(path):
            linux.tmpfs(path, mode)
    for path in ("/run/sshd", "/run/lock", "/run/user"):
        os.makedirs(path, exist_ok=True)
    _devices(plan)
    _proc(boot_id)
    linux.mount("sysfs", "/sys", "sysfs", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    if groups is not None:
        linux.bind(groups, cgroups.MOUNT)
    if plan.cgroup:
        for controller, path in cgroups.add_host(plan.top, host.name).items():
            linux.bind(linux.path_fd(path), f"{cgroups.MOUNT}/{controller}")
    for path, fd in opened:
        _make_place(path, os.path.isdir(f"/proc/self/fd/{fd}"))
        linux.bind(fd, path)
