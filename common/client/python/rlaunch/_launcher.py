"""The program rlaunch that was installed with this package."""

from __future__ import annotations

import os
import pathlib
from typing import Iterator

_HERE = pathlib.Path(__file__).resolve().parent


def launcher() -> str:
    """Returns the path of the program ``rlaunch`` that was installed with this package.

    Scripts start jobs with it: ``subprocess.run([rlaunch.launcher(), "-n", "4", "train"])``. Another ``rlaunch`` in ``PATH`` does not matter.
    ``FileNotFoundError``: the package was installed without the program.
    """
    for path in _candidates():
        if path.is_file() and os.access(path, os.X_OK):
            return str(path.resolve())
    raise FileNotFoundError("this package has no program rlaunch: install the wheel that scripts/package makes (pip install rlaunch-*.whl)")


def _candidates() -> Iterator[pathlib.Path]:
    # This import takes a fifth of the time of the whole package, and is rarely needed.
    from importlib import metadata

    for distribution in metadata.distributions(name="rlaunch", path=[str(_HERE.parent)]):
        for file in distribution.files or ():
            if file.name == "rlaunch" and file.parent.name in ("bin", "scripts"):
                yield pathlib.Path(os.fspath(file.locate()))
    # pip install --target moves the program after it has noted its place.
    yield _HERE.parent / "bin" / "rlaunch"
