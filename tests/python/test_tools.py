"""Checks of arguments, and injected faults, as NVRx's scripts use them."""

import os
import threading
import unittest
from unittest import mock

from rlaunch.inprocess import param_utils
from rlaunch.inprocess.tools import inject_fault as faults


class Arguments(unittest.TestCase):
    def test_the_callers_variables_are_checked_by_name(self):
        def takes(hook, count):
            param_utils.enforce_subclass("hook", OSError)
            param_utils.enforce_type("count", (int, float))
            param_utils.enforce_value(0 < count < 5)

        takes(FileNotFoundError, 4)
        for arguments, kind, said in (
            ((ValueError, 1), TypeError, "hook takes a class that is an OSError, got <class 'ValueError'>"),
            ((3, 1), TypeError, "hook takes a class that is an OSError, got 3"),
            ((OSError, "1"), TypeError, "count takes an int or float, got '1' of type str"),
            ((OSError, 7), ValueError, r"enforce_value\(0 < count < 5\): this does not hold, with count=7"),
        ):
            with self.subTest(said), self.assertRaisesRegex(kind, said):
                takes(*arguments)


class Faults(unittest.TestCase):
    def drawn(self, world_size, **kwargs):
        """The ranks on which the fault is made."""
        made = []
        for rank in range(world_size):
            with mock.patch.dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world_size)):
                with mock.patch.object(faults, "dispatch_fault_injection", lambda *what, rank=rank: made.append((rank, *what))):
                    faults.inject_fault(**{"faults": (faults.Fault.SIGKILL, faults.Fault.LOCK_GIL), "delay": (1.0, 2.0), "seed": 7, **kwargs})
        return made

    def test_all_ranks_draw_the_same(self):
        made = self.drawn(16, num_faults=(2, 5), keep_alive=3)
        self.assertIn(len(made), range(2, 6))
        self.assertEqual(len({(fault, delay) for _, fault, delay, _ in made}), 1)
        self.assertTrue(all(rank >= 3 and 1.0 <= delay <= 2.0 for rank, _, delay, _ in made))
        self.assertEqual(made, self.drawn(16, num_faults=(2, 5), keep_alive=3))
        # Protected ranks are never drawn, even if more faults are requested.
        self.assertEqual([rank for rank, *_ in self.drawn(4, num_faults=4, keep_alive=3)], [3])
        self.assertEqual(self.drawn(2, num_faults=1, keep_alive=3), [])

    def test_an_exception_comes_at_the_next_place_for_one(self):
        called = threading.Event()
        faults.maybe_raise_workload_exception()
        faults.dispatch_fault_injection(faults.Fault.WORKLOAD_EXC, 0.0, called.set)
        called.wait()
        with self.assertRaises(faults.InjectedException):
            while True:
                faults.maybe_raise_workload_exception()
        faults.maybe_raise_workload_exception()

    def test_a_fault_of_the_scripts_own(self):
        made = []
        own = faults.register_fault("OWN", lambda *what: made.append(what))
        self.assertIs(faults.Fault["OWN"], own)
        faults.dispatch_fault_injection(own, 0.5, None)
        self.assertEqual(made, [(0.5, None)])
        with mock.patch.dict(faults._makers):
            self.assertIs(faults.register_fault(faults.Fault.SEGFAULT, print), faults.Fault.SEGFAULT)

    def test_each_fault_has_a_maker(self):
        self.assertLessEqual(set(faults.Fault), set(faults._makers))


if __name__ == "__main__":
    unittest.main()
