"""Default backend of a group."""

import unittest
from unittest import mock

try:
    import torch
    import torch.distributed as dist
except ImportError:
    torch = None


@unittest.skipUnless(torch and dist.is_available(), "needs torch")
class Usual(unittest.TestCase):
    def found(self, cuda, nccl):
        from rlaunch import torch as ours

        with mock.patch.object(torch.cuda, "is_available", lambda: cuda), mock.patch.object(dist, "is_nccl_available", lambda: nccl):
            return ours._usual_backend()

    def test_without_gpus_the_backend_is_gloo(self):
        self.assertEqual([self.found(False, True), self.found(True, False), self.found(False, False)], ["gloo"] * 3)

    def test_with_gpus_nccl_has_tensors_on_gpus(self):
        self.assertIn(self.found(True, True), ("nccl", "cpu:gloo,cuda:nccl"))
        self.assertEqual(self.found(True, True) == "nccl", torch.__version__.startswith("1."))

    def test_groups_are_counted_from_the_begin_of_each_round_of_each_call(self):
        from rlaunch import _world
        from rlaunch import torch as ours

        keys = []
        found = mock.Mock(**{"rendezvous.side_effect": lambda *_, **__: iter([(mock.Mock(), 0, 1)])})
        with mock.patch.object(ours, "_c10d", lambda: found), mock.patch.dict("os.environ", RANK="0", WORLD_SIZE="1"), mock.patch.object(
            _world, "_round", None
        ), mock.patch.object(dist, "PrefixStore", lambda prefix, _: keys.append(prefix)), mock.patch.object(dist, "init_process_group"):
            for groups in (2, 2, 1):
                # Round 0 of another call each time.
                _world.enter_round(0)
                for _ in range(groups):
                    ours.init_process_group("gloo")
        self.assertEqual(keys, [f"rlaunch/{number}" for number in (0, 1, 0, 1, 0)])


if __name__ == "__main__":
    unittest.main()
