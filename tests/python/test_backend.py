"""Which backend a group has if nothing is said."""

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

    def test_without_gpus_it_is_gloo(self):
        self.assertEqual([self.found(False, True), self.found(True, False), self.found(False, False)], ["gloo"] * 3)

    def test_with_gpus_nccl_has_what_is_theirs(self):
        self.assertIn(self.found(True, True), ("nccl", "cpu:gloo,cuda:nccl"))
        self.assertEqual(self.found(True, True) == "nccl", torch.__version__.startswith("1."))


if __name__ == "__main__":
    unittest.main()
