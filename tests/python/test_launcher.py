"""The program that was installed with the package.

    PYTHONPATH=common/client/python python3 -m unittest discover tests/python
"""

import os
import pathlib
import tempfile
import unittest
from unittest import mock

from rlaunch import _launcher


class Launcher(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.prefix = pathlib.Path(scratch.name).resolve() / "a prefix"
        self.site = self.prefix / "lib/python3/site-packages"
        (self.site / "rlaunch").mkdir(parents=True)
        patched = mock.patch.object(_launcher, "_HERE", self.site / "rlaunch")
        patched.start()
        self.addCleanup(patched.stop)

    def program(self, path):
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return str(path)

    def record(self, line):
        about = self.site / "rlaunch-0.1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: rlaunch\nVersion: 0.1.0\n")
        (about / "RECORD").write_text(f"rlaunch/__init__.py,,\n{line},,\n")

    def test_a_program_is_found_by_the_record_of_the_installation(self):
        self.record("../../../bin/rlaunch")
        self.assertEqual(self.program(self.prefix / "bin/rlaunch"), _launcher.launcher())

    def test_a_program_is_found_beside_the_package_after_install_to_a_target(self):
        self.record("../../bin/rlaunch")
        self.assertEqual(self.program(self.site / "bin/rlaunch"), _launcher.launcher())

    def test_a_package_without_a_program_names_the_remedy(self):
        self.record("rlaunch/py.typed")
        with self.assertRaisesRegex(FileNotFoundError, "scripts/package"):
            _launcher.launcher()

    def test_another_rlaunch_in_path_is_not_taken(self):
        other = self.program(self.prefix / "other/rlaunch")
        with mock.patch.dict(os.environ, PATH=os.path.dirname(other)), self.assertRaises(FileNotFoundError):
            _launcher.launcher()
