#!/usr/bin/env python3
"""The job of examples/train in PyTorch: DistributedDataParallel over gloo, with a rendezvous by env://.

Every rank looks at its share of each batch, DDP averages the gradients, and rank 0 prints loss and held-out
accuracy after each epoch. The curve does not depend on the number of ranks. Runs with PyTorch 1.13 and newer,
on CPUs, and outside a launcher as a world of one.

Data: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI repository (CC BY 4.0);
see train/data/README.md beside this file.
"""

import argparse
import datetime
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train", "data", "digits.csv")
HOLD_OUT = 5  # every how many images one is held out


def parse_arguments():
    parser = argparse.ArgumentParser(description="Trains a small network on handwritten digits, data-parallel.")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training images (default: 20)")
    parser.add_argument("--batch", type=int, default=64, help="images per step, all ranks together (default: 64)")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate (default: 0.1)")
    parser.add_argument("--seed", type=int, default=1, help="seed of first weights and order (default: 1)")
    parser.add_argument("--hidden", type=int, default=32, help="units of the hidden layer (default: 32)")
    parser.add_argument("--timeout", type=int, default=60, help="give up on silent ranks after SECS (default: 60)")
    options = parser.parse_args()
    for name in ("epochs", "batch", "hidden", "timeout"):
        if getattr(options, name) < 1:
            parser.error("--%s %d: give a number from 1" % (name, getattr(options, name)))
    return options


def load_digits():
    """Images to learn from and images held out, each as (pixels, labels)."""
    with open(DATA, encoding="ascii") as file:
        rows = [[int(number) for number in line.split(",")] for line in file]
    parts = ([row for i, row in enumerate(rows) if i % HOLD_OUT], rows[::HOLD_OUT])
    return [
        (torch.tensor([row[:64] for row in part]).double() / 16, torch.tensor([row[64] for row in part]))
        for part in parts
    ]


def share(items, rank, size):
    """This rank's part of a row: contiguous, and as long as the others' up to one."""
    length, rest = divmod(len(items), size)
    start = rank * length + min(rank, rest)
    return items[start : start + length + (rank < rest)]


def total(value):
    """The sum of a number over all ranks."""
    tensor = torch.tensor([float(value)], dtype=torch.float64)
    dist.all_reduce(tensor)
    return tensor.item()


def learn(model, optimizer, images, labels, batch, rank, size):
    """Makes one step on a batch. Returns this rank's part of the loss."""
    mine = share(batch, rank, size)
    loss = nn.functional.cross_entropy(model(images[mine]), labels[mine], reduction="sum")
    optimizer.zero_grad()
    # DDP divides by the number of ranks, whatever their shares. Undoing that and dividing by the batch gives every
    # image the same weight. A rank without images still takes part, with a gradient of zero.
    (loss * size / len(batch)).backward()
    optimizer.step()
    return loss.item()


def train(options, rank, size):
    (images, labels), (held_images, held_labels) = load_digits()
    torch.manual_seed(options.seed)
    model = nn.Sequential(nn.Linear(64, options.hidden), nn.Tanh(), nn.Linear(options.hidden, 10))
    parameters = sum(p.numel() for p in model.parameters())
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)

    def say(line):
        if rank == 0:
            print(line, flush=True)

    say(
        "%d rank%s, %d images to learn, %d held out, batches of %d, %d parameters"
        % (size, "" if size == 1 else "s", len(labels), len(held_labels), options.batch, parameters)
    )
    # A generator of its own: every rank must see the same order, whatever else draws random numbers.
    generator = torch.Generator().manual_seed(options.seed)
    for epoch in range(1, options.epochs + 1):
        order = torch.randperm(len(labels), generator=generator)
        loss = sum(
            learn(model, optimizer, images, labels, batch, rank, size) for batch in order.split(options.batch)
        )
        with torch.no_grad():
            # The bare module: DDP's forward expects all ranks to go through it alike.
            guesses = model.module(share(held_images, rank, size)).argmax(dim=1)
        right = total((guesses == share(held_labels, rank, size)).sum().item())
        accuracy = 100 * right / len(held_labels)
        say("epoch %3d  loss %.4f  held-out accuracy %.2f %%" % (epoch, total(loss) / len(labels), accuracy))
    say("final held-out accuracy %.2f %% (%d of %d)" % (accuracy, right, len(held_labels)))


def main():
    options = parse_arguments()
    torch.set_num_threads(1)  # ranks share the host's cores already
    # float64 keeps the effect of the order of additions below every printed digit.
    torch.set_default_dtype(torch.float64)
    if "RANK" in os.environ:
        where = {"init_method": "env://"}
    else:
        where = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=options.timeout), **where)
    try:
        train(options, dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
