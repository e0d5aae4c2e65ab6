"""Program like many training scripts, with its rendezvous at a port of its own choice instead of the launcher's.

    rlaunch -n 2 python3 own_port.py PORT
"""

import os
import sys

import torch
import torch.distributed as dist


def setup(rank, world_size):
    """Joins the group."""
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = sys.argv[1]
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
setup(RANK, SIZE)
TOTAL = torch.tensor([float(RANK)])
dist.all_reduce(TOTAL)
os.write(1, f"rank {RANK} of {SIZE}: {TOTAL.item():g}\n".encode())
dist.destroy_process_group()
