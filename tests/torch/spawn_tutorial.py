"""Program like PyTorch's DDP tutorial. It has its own address, and starts its own processes with mp.spawn.

    rlaunch python3 spawn_tutorial.py PORT         everything by itself
    rlaunch -n 2 python3 spawn_tutorial.py PORT    each rank is a "node" that spawns two, which meet at MASTER_PORT by tcp://
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

EACH = 2


def setup(rank, world_size, nodes):
    """Joins the group."""
    if nodes == 1:
        os.environ["MASTER_ADDR"] = "localhost"
        os.environ["MASTER_PORT"] = sys.argv[1]
        dist.init_process_group("gloo", rank=rank, world_size=world_size)
    else:
        url = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        dist.init_process_group("gloo", init_method=url, rank=rank, world_size=world_size)


def demo_basic(local, node, nodes):
    """Runs one step of training."""
    rank, world_size = node * EACH + local, nodes * EACH
    setup(rank, world_size, nodes)
    model = DDP(nn.Linear(4, 1, bias=False))
    loss_fn, optimizer = nn.MSELoss(), torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer.zero_grad()
    loss_fn(model(torch.ones(2, 4) * rank), torch.zeros(2, 1)).backward()
    optimizer.step()
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    os.write(1, f"rank {rank} of {world_size}: {total.item():g}\n".encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(demo_basic, args=(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])), nprocs=EACH, join=True)
