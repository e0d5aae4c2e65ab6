"""Program like the documentation of TCPStore: rank 0 opens the store at the address from the launcher.

    rlaunch -n 2 python3 own_store.py
"""

import datetime
import os

import torch
import torch.distributed as dist

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PATIENCE = datetime.timedelta(seconds=30)
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), SIZE, is_master=RANK == 0, timeout=PATIENCE)
store.set(f"from {RANK}", "1")
store.wait([f"from {rank}" for rank in range(SIZE)], PATIENCE)
dist.init_process_group("gloo", store=dist.PrefixStore("group", store), rank=RANK, world_size=SIZE)
TOTAL = torch.tensor([float(RANK)])
dist.all_reduce(TOTAL)
dist.barrier()
os.write(1, f"rank {RANK} of {SIZE}: {TOTAL.item():g}\n".encode())
dist.destroy_process_group()
