"""Program like PyTorch's tutorial of fault-tolerant training with torchrun, without a GPU. It reads only torchrun's variables, and
continues from its snapshot.

    rlaunch -n 2 python3 elastic_multigpu.py EPOCHS SAVE_EVERY SNAPSHOT
"""

import os
import sys

import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def ddp_setup():
    """Joins the group."""
    init_process_group(backend="gloo")


class Trainer:
    """Trainer that takes a snapshot now and then."""

    def __init__(self, model, data, optimizer, save_every, path):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.model, self.data, self.optimizer = model, data, optimizer
        self.save_every, self.path = save_every, path
        self.epochs_run = 0
        if os.path.exists(path):
            snapshot = torch.load(path)
            self.model.load_state_dict(snapshot["MODEL_STATE"])
            self.epochs_run = snapshot["EPOCHS_RUN"]
        self.model = DDP(self.model)

    def run_epoch(self, epoch):
        """Trains with each batch once."""
        self.data.sampler.set_epoch(epoch)
        for source, targets in self.data:
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.model(source), targets).backward()
            self.optimizer.step()

    def train(self, epochs):
        """Trains the remaining epochs."""
        for epoch in range(self.epochs_run, epochs):
            self.run_epoch(epoch)
            if self.global_rank == 0 and epoch % self.save_every == 0:
                torch.save({"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch + 1}, self.path)


def main(epochs, save_every, path):
    """Main function of the tutorial."""
    ddp_setup()
    torch.manual_seed(1)
    inputs = torch.rand(64, 20)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    loader = DataLoader(data, batch_size=8, shuffle=False, sampler=DistributedSampler(data))
    model = torch.nn.Linear(20, 1)
    trainer = Trainer(model, loader, torch.optim.SGD(model.parameters(), lr=1e-2), save_every, path)
    begun = trainer.epochs_run
    trainer.train(epochs)
    weight = next(trainer.model.parameters()).sum().item()
    os.write(1, f"rank {trainer.global_rank}: epochs {begun} to {epochs}, {weight:.4f}\n".encode())
    destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
