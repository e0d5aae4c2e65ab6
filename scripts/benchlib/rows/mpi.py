"""mpi: programs of MPICH, Open MPI and Intel MPI below rlaunch and below their own launchers, with the same settings.

The libraries are the wheels of PyPI and, where they are installed, Debian's MPICH 4.0 and Open MPI 4.1. A barrier is measured with more
ranks than processors: there it shows whether ranks yield. A start beside two busy shells shows the share of the ranks in the processors.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from functools import partial

from .. import procs, toolbox
from ..case import Case, Goal
from ..launchers import Launcher
from ..measure import Sample

WITHIN = 120.0
OMPI = ("OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,sm", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
INTEL = ("I_MPI_FABRICS=shm",)


# name -> (library, launcher, words of the launcher, settings)
DEBIAN = {
    "mpich4": ("libmpich.so.12", "mpirun.mpich", (), ()),
    "ompi4": ("libmpi.so.40", "mpirun.openmpi", ("--allow-run-as-root", "--oversubscribe"), ("OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,vader")),
}
SPIN = "while :; do :; done"


def _build(source, out, library, headers):
    """The program for a library, which it finds by itself."""
    newest = max(source.stat().st_mtime, library.stat().st_mtime)
    if not out.exists() or out.stat().st_mtime < newest:
        subprocess.run(["cc", "-O2", "-o", out, source, "-I", headers / "include", library,
                        f"-Wl,--allow-shlib-undefined,-rpath,{library.parent}"], check=True)
    return str(out)


def _programs(without_intel):
    """name -> (program, settings)."""
    cache = toolbox.cache_dir()
    source = toolbox.SOURCES / "mpi" / "hello.c"
    mpich, ompi = (pathlib.Path(toolbox.install_peer(peer)).parent.parent for peer in ("hydra", "prterun"))
    made = {
        "mpich": (_build(source, cache / "bin" / "hello_mpich", mpich / "lib/libmpi.so.12", mpich), ()),
        "ompi": (_build(source, cache / "bin" / "hello_ompi", ompi / "lib/libmpi.so.40", ompi), OMPI),
    }
    if not without_intel:
        intel = pathlib.Path(toolbox.install_peer("impi")).parent.parent
        settings = (*INTEL, f"I_MPI_ROOT={intel}")
        made["intel"] = (_build(source, cache / "bin" / "hello_intel", intel / "lib/libmpi.so.12", mpich), settings)
    for name, (soname, launcher, _, settings) in DEBIAN.items():
        library = pathlib.Path("/usr/lib") / f"{os.uname().machine}-linux-gnu" / soname
        if library.exists() and shutil.which(launcher):
            headers = mpich if name == "mpich4" else ompi
            made[name] = (_build(source, cache / "bin" / f"hello_{name}", library, headers), settings)
    return made


def _beside_busy_shells(bench, command):
    """Milliseconds of a command beside two shells that spin, each in a session of its own."""
    shells = [subprocess.Popen(["sh", "-c", SPIN], start_new_session=True) for _ in range(2)]
    try:
        return bench.clock.milliseconds(command, seconds=WITHIN)
    finally:
        for shell in shells:
            shell.kill()
            shell.wait()


def _barrier(bench, command):
    """Microseconds of a barrier, as the first rank has measured it."""
    with tempfile.NamedTemporaryFile(dir=bench.scratch) as out:
        sample = bench.clock.run(command, seconds=WITHIN, stdout=out.name)
        if sample.value is None:
            return sample
        return Sample(float(pathlib.Path(out.name).read_text().split()[0]))


def _own_memory(bench, launcher, ranks, *words):
    """Memory of the launcher's own processes in KiB while ranks run this client; None if the ranks do not come."""
    place = tempfile.mkdtemp(dir=bench.scratch)
    client = bench.programs["pmi1_client"]
    job = procs.Job(launcher.command(ranks, [client, *words, place]), place)
    with job:
        end = time.monotonic() + WITHIN
        while len(os.listdir(place)) < ranks:
            if time.monotonic() > end or job.process.poll() is not None:
                return None
            time.sleep(0.01)
        time.sleep(0.3)
        own = {pid for pid in job.below() if procs.name(pid) != "pmi1_client"} | {job.launcher}
        return sum(procs.memory(pid)["pss"] for pid in procs.distinct(own))


def _growth(bench, launcher, few, many):
    """KiB of each rank that has come to a barrier without a key, beside those of a rank that uses no MPI."""
    served, none = launcher.with_words(launcher.name, "--mpi", "on"), launcher.with_words(launcher.name, "--mpi", "none")
    parts = [_own_memory(bench, *what) for what in
             ((served, many, "idle"), (served, few, "idle"), (none, many, "alone"), (none, few, "alone"))]
    if None in parts:
        return Sample(failure="the ranks did not come up")
    return Sample((parts[0] - parts[1] - parts[2] + parts[3]) / (many - few))


def cases(bench):
    """MPI programs: start to end, a barrier of too many ranks, PMI-1 alone, and the cost to jobs without MPI."""
    intel = Launcher("impi", (toolbox.install_peer("impi"),)) if "impi" not in bench.without else None
    programs = _programs(intel is None)
    own = bench.launchers.get("rlaunch")
    ours = [bench.launchers.get(name) for name in ("rlaunch", "before")]
    peers = {"mpich": bench.launchers.get("hydra"), "ompi": bench.launchers.get("prterun"), "intel": intel}
    peers |= {name: Launcher(launcher, (launcher, *words)) for name, (_, launcher, words, _) in DEBIAN.items() if name in programs}

    def start(library, ranks, limit, measure=partial(bench.clock.milliseconds, seconds=WITHIN), beside=""):
        program, settings = programs[library]
        pair = [one for one in (peers[library], *ours) if one]
        contenders = {one.name: partial(measure, ["env", *settings, *one.command(ranks, [program])]) for one in pair}
        return Case(f"mpi: hello of {library}, -n {ranks}{beside}", "ms", contenders, goals=(Goal(limit, peers[library].name),))

    def barrier(library, limit, times, ranks=8):
        program, settings = programs[library]
        pair = [one for one in (peers[library], *ours) if one]
        line = {one.name: ["taskset", "-c", "0,1", "env", *settings, *one.command(ranks, [program, "barrier", str(times)])] for one in pair}
        contenders = {name: partial(_barrier, bench, words) for name, words in line.items()}
        return Case(f"mpi: barrier of {library}, {ranks} ranks on 2 processors", "µs", contenders,
                    goals=(Goal(limit, peers[library].name),), max_rounds=3)

    ready = [name for name in programs if peers[name]]
    starts = [("mpich", 8, 1.0), ("mpich", 32, 0.85), ("ompi", 8, 0.8), ("ompi", 32, 0.6), ("intel", 8, 1.0), ("mpich4", 8, 1.1)]
    made = [start(name, bench.size(ranks, 4), limit) for name, ranks, limit in starts if name in ready]
    busy = partial(_beside_busy_shells, bench)
    made += [start(name, 4, 1.1, busy, " beside two busy shells") for name in ("mpich", "mpich4") if name in ready]
    barriers = [("mpich", 0.2), ("ompi", 1.2), ("intel", 0.2)]
    made += [barrier(name, limit, bench.size(50, 5)) for name, limit in barriers if name in ready]
    made += [barrier("ompi4", 1.1, bench.size(2000, 20), 4)] if "ompi4" in ready else []
    many = bench.size(256, 32)
    pair = [one for one in (peers["mpich"], *ours) if one]
    client = {one.name: partial(bench.clock.milliseconds, one.command(many, [bench.programs["pmi1_client"]]), seconds=WITHIN) for one in pair}
    made.append(Case(f"mpi: PMI-1, put, barrier, get all, -n {many}", "ms", client, goals=(Goal(0.35, "hydra"),)))
    if own:
        none = own.with_words("rlaunch --mpi none", "--mpi", "none")
        for ranks in (1, many):
            line = {one.name: partial(bench.clock.milliseconds, one.command(ranks, ["/bin/true"])) for one in (none, own)}
            made.append(Case(f"mpi: /bin/true, -n {ranks}", "ms", line, goals=(Goal(1.01, none.name),)))
        memory = {own.name: partial(_growth, bench, own, 16, many)}
        made.append(Case(f"mpi: memory for MPI per rank, 16 to {many}", "KiB", memory, goals=(Goal(2),), max_rounds=3, max_sittings=1))
    return made
