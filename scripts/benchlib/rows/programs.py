"""programs: real programs of Debian below rlaunch and below their own mpirun: 4 ranks on this host, or a rank on each of two.

A sample is a failure if the result is not that of the first sample. Programs that are not installed are left out:
apt-get install lammps quantum-espresso cp2k nwchem mumps-test scalapack-mpi-test ptscotch python3-petsc4py hpcc netpipe-openmpi
"""

import dataclasses
import glob
import os
import pathlib
import re
import shutil
from functools import partial

from .. import hosts as testbed
from .. import toolbox
from ..case import Case, Goal
from ..launchers import Launcher
from ..measure import Sample

INPUTS = toolbox.SOURCES / "programs"
SECONDS = 120.0
RANKS = 4
LIMIT = 1.1
SETTINGS = ("OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMP_NUM_THREADS=1", "OMPI_MCA_btl=self,vader,tcp")
MPIRUN = ("mpirun.openmpi", "--oversubscribe")
LIBRARIES = f"/usr/lib/{os.uname().machine}-linux-gnu"
PETSC = f"/usr/lib/petscdir/petsc*/{os.uname().machine}-linux-gnu-real/lib/python3*/dist-packages"


@dataclasses.dataclass(frozen=True)
class Program:
    """Program, and the pattern that shows whether it has done its work."""

    words: tuple
    result: str
    """The pattern of the lines of its output, or of `file`, that must be the same below each launcher."""
    settings: tuple = ()
    file: str = ""
    ranks: int = RANKS
    stdin: str = ""


PROGRAMS = {
    "lammps": Program(("/usr/bin/lmp", "-in", "melt.in", "-log", "none"), r"^ +100 +.*$"),
    "pw.x": Program(("/usr/bin/pw.x", "-in", "silicon.in"), r"^! .*$"),
    "cp2k": Program(("/usr/bin/cp2k", "-i", "water.inp"), r"ENERGY\|.*\.\d{6}"),
    "nwchem": Program(("/usr/bin/nwchem", "water.nw"), r"Total SCF energy.*\.\d{6}"),
    "mumps": Program(("/usr/lib/mumps/dsimpletest",), r"executing #MPI = +\d+", stdin="/usr/lib/mumps/input_simpletest_real"),
    "scalapack": Program((f"{LIBRARIES}/scalapack/openmpi-tests/xdlu",), r"^ +\d+ tests .*$"),
    "ptscotch": Program(("/usr/bin/dgord", "grid.grf", "order"), r"\A\d+$", file="order"),
    "petsc4py": Program(("/usr/bin/python3", "poisson.py"), r"^(?:steps|norm) .*$"),
    "hpcc": Program(("/usr/bin/hpcc",), r"^(?:\|\|Ax-b.*PASSED|Success=1)$", file="hpccoutf.txt"),
    "netpipe": Program(("/usr/bin/NPopenmpi", "-n", "1000", "-u", "1024", "-o", "np.out"), r"^ *1027 ", file="np.out", ranks=2),
}

ONE_HOST = ("nwchem",)
"""Debian's aborts on several hosts, below mpirun too."""


def _grid(side=60):
    """A square grid in the form of Scotch: version, vertices and edges, then the neighbours of each vertex."""
    def of(x, y):
        around = ((x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1))
        return [b * side + a for a, b in around if 0 <= a < side and 0 <= b < side]
    vertices = [of(x, y) for y in range(side) for x in range(side)]
    lines = [f"0\n{len(vertices)}\t{sum(map(len, vertices))}\n0\t000"]
    lines += ["\t".join(map(str, [len(near), *near])) for near in vertices]
    return "\n".join(lines) + "\n"


def _place(scratch, name, contender):
    """A directory with the inputs."""
    place = pathlib.Path(scratch) / f"{name}-{contender}"
    shutil.copytree(INPUTS, place)
    (place / "grid.grf").write_text(_grid())
    if name == "scalapack":
        shutil.copy("/usr/share/scalapack/LU.dat", place)
    return place


def _result(program, place):
    text = (place / (program.file or "stdout")).read_text(errors="replace")
    return re.findall(program.result, text, re.MULTILINE)


def _sample(clock, program, place, words, results):
    """Milliseconds, if the result is the one that the first sample had."""
    if program.file:
        (place / program.file).unlink(missing_ok=True)
    line = ["env", f"--chdir={place}", *SETTINGS, *program.settings, *words]
    sample = clock.milliseconds(line, seconds=SECONDS, stdin=program.stdin or None, stdout=str(place / "stdout"))
    if sample.value is None:
        return sample
    found = _result(program, place)
    if not found or results.setdefault("of the first", found) != found:
        return Sample(failure=f"the result is {str(found)[:100]}, not {str(results.get('of the first'))[:100]}")
    return sample


def _case(name, clock, launchers, scratch, hosts=1):
    program = PROGRAMS[name]
    if hosts > 1:
        program = dataclasses.replace(program, ranks=hosts)
    if name == "petsc4py":
        found = glob.glob(PETSC)
        program = dataclasses.replace(program, settings=(f"PYTHONPATH={found[0]}",)) if found else None
    if program is None or not os.path.exists(program.words[0]):
        return None
    results = {}
    contenders = {}
    for launcher in launchers:
        place = _place(scratch, name, launcher.name)
        words = launcher.command(program.ranks, program.words)
        contenders[launcher.name] = partial(_sample, clock, program, place, words, results)
    return Case(f"programs: {name}, -n {program.ranks}, {hosts} host{'s' * (hosts > 1)}", "ms", contenders, goals=(Goal(LIMIT, "mpirun"),), max_rounds=5, max_sittings=1)


def cases(bench):
    """Real programs of Debian: their results and their times, beside those below Open MPI's mpirun."""
    if not shutil.which(MPIRUN[0]):
        return []
    launchers = [Launcher("mpirun", MPIRUN), *(one for name, one in bench.launchers.items() if name == "rlaunch")]
    found = [_case(name, bench.clock, launchers, bench.scratch) for name in PROGRAMS]
    return [case for case in found if case]


def ssh_cases(bench):
    """Real programs of Debian on two hosts."""
    hosts = testbed.of(bench, "ssh")
    if not hosts or not shutil.which(MPIRUN[0]):
        return []
    own = hosts.launchers(2)["rlaunch"]
    # The hosts share this machine's processors: mpirun would bind both ranks to the same one.
    peer = Launcher("mpirun", (*MPIRUN, "--bind-to", "none", "--host", "node0,node1", "-x", "OMP_NUM_THREADS", "-x", "PYTHONPATH"))
    found = [_case(name, testbed.Inside(hosts), [peer, own], hosts.scratch, hosts=2) for name in PROGRAMS if name not in ONE_HOST]
    return [case for case in found if case]
