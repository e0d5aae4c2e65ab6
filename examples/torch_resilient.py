#!/usr/bin/env python3
"""The job of torch_ddp.py, which survives the loss of ranks: rlaunch's Wrapper restarts the function in the remaining processes.

    scripts/build-client
    PYTHONPATH=target/client/python rlaunch -n 4 python3 examples/torch_resilient.py --fault kill:0:40 --fault exception:2:90

Each rank keeps a snapshot in memory, taken at the end of a step. An operation that was broken off may have left weights half changed, so
a round begins from the newest snapshot that any rank has; ranks may be one step apart, and a process that is new has none.

A step's images are cut into pieces that do not depend on the number of ranks, and gradients are added as whole numbers. So the weights
are equal byte for byte to those of an undisturbed run, with any number of ranks.

Runs with PyTorch 1.13 and newer, on CPUs, and outside rlaunch as a world of one.

Data: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI repository (CC BY 4.0);
see train/data/README.md beside this file.
"""

import argparse
import ctypes
import datetime
import hashlib
import os
import queue
import re
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

import rlaunch.inprocess as inprocess
import rlaunch.torch

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train", "data", "digits.csv")
HOLD_OUT = 5  # every how many images one is held out
PIECE = 8  # images whose gradient is computed at once
UNIT = 2.0**-40  # of the whole numbers that gradients are added as: addition in another order gives the same sum
FIRST_RANK = int(os.environ.get("RLAUNCH_RANK", "0"))

FAULTS = {
    "exception": lambda: raise_error(),
    "exit": lambda: sys.exit(9),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "term": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "segfault": lambda: ctypes.string_at(1),
    "abort": os.abort,
    "lock": lambda: re.match("(a?){40}a{40}", "a" * 40),  # Holds the interpreter's lock for ever.
    "sleep": lambda: time.sleep(3600),
    "queue": lambda: queue.Queue().get(),
    "event": lambda: threading.Event().wait(),
}


def raise_error():
    raise RuntimeError("a fault that was asked for")


def fault(text):
    """Parses KIND:RANK:STEP."""
    kind, rank, step = text.split(":")
    if kind not in FAULTS:
        raise ValueError(kind)
    return kind, int(rank), int(step)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Trains a small network on handwritten digits, through the loss of ranks.")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training images (default: 20)")
    parser.add_argument("--batch", type=int, default=64, help="images per step, all ranks together (default: 64)")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate (default: 0.1)")
    parser.add_argument("--seed", type=int, default=1, help="seed of first weights and order (default: 1)")
    parser.add_argument("--hidden", type=int, default=32, help="units of the hidden layer (default: 32)")
    parser.add_argument("--pause", type=float, default=0, help="seconds between two steps, to have time for faults (default: 0)")
    parser.add_argument("--soft-timeout", type=float, default=60, help="a rank silent for so long is interrupted (default: 60)")
    parser.add_argument("--hard-timeout", type=float, default=90, help="and ended after so long (default: 90)")
    parser.add_argument(
        "--fault",
        type=fault,
        action="append",
        default=[],
        metavar="KIND:RANK:STEP",
        help=f"at this step the process that was this rank first fails; KIND is one of {', '.join(FAULTS)}",
    )
    return parser.parse_args()


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


class Memory:
    """Snapshot that a process keeps from round to round."""

    def __init__(self):
        self.kept = (-1, None)  # the last whole step, and the state after it
        self.faults_done = set()

    def keep(self, step, model, optimizer):
        # One assignment of a complete copy: an interrupt may come between two assignments.
        self.kept = (step, [tensor.clone() for tensor in tensors(model, optimizer)])

    def agree(self, model, optimizer):
        """Gives all ranks the newest snapshot of any rank. Returns the number of steps that are done."""
        step, state = self.kept
        steps = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
        dist.all_gather(steps, torch.tensor([step]))
        newest = max(int(step) for step in steps)
        if newest < 0:
            return 0
        source = [int(step) for step in steps].index(newest)
        own = state if dist.get_rank() == source else None
        with torch.no_grad():
            for i, tensor in enumerate(tensors(model, optimizer)):
                if own is not None:
                    tensor.copy_(own[i])
                dist.broadcast(tensor, source)
        return newest + 1


def tensors(model, optimizer):
    """The tensors that training changes: weights, and the optimizer's momentum."""
    for parameter in model.parameters():
        yield parameter.data
        state = optimizer.state[parameter]
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        yield state["momentum_buffer"]


def learn(model, optimizer, images, labels, batch, rank, size):
    """Makes one step. Returns the loss of the batch."""
    pieces = [batch[at : at + PIECE] for at in range(0, len(batch), PIECE)]
    # Gradients and loss in one tensor: all ranks have the step, or none has.
    total = torch.zeros(sum(parameter.numel() for parameter in model.parameters()) + 1, dtype=torch.int64)
    for piece in share(pieces, rank, size):
        loss = nn.functional.cross_entropy(model(images[piece]), labels[piece], reduction="sum") / len(batch)
        optimizer.zero_grad()
        loss.backward()
        own = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()] + [loss.detach().reshape(1)])
        total += (own / UNIT).round().long()
    dist.all_reduce(total)
    flat = total.double() * UNIT
    at = 0
    for parameter in model.parameters():
        parameter.grad = flat[at : at + parameter.numel()].view_as(parameter).clone()
        at += parameter.numel()
    optimizer.step()
    return flat[-1].item()


def train(options, memory, call: inprocess.CallWrapper):
    """Trains in one round. This function is restarted."""
    # An interrupt may have come just when no_grad() began, before it could undo itself.
    torch.set_grad_enabled(True)
    rlaunch.torch.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    (images, labels), (held_images, held_labels) = load_digits()
    torch.manual_seed(options.seed)
    model = nn.Sequential(nn.Linear(64, options.hidden), nn.Tanh(), nn.Linear(options.hidden, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    done = memory.agree(model, optimizer)

    def say(line):
        if rank == 0:
            print(line, flush=True)

    say("round %d: %d rank%s, from step %d" % (call.iteration, size, "" if size == 1 else "s", done))
    per_epoch = -(-len(labels) // options.batch)
    for step in range(done, options.epochs * per_epoch):
        epoch, within = divmod(step, per_epoch)
        # The same order on all ranks, and in every round.
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(options.seed + epoch))
        batch = order[within * options.batch : (within + 1) * options.batch]
        fail(options, memory, step)
        loss = learn(model, optimizer, images, labels, batch, rank, size)
        memory.keep(step, model, optimizer)
        call.ping()
        if options.pause:
            time.sleep(options.pause)
        if within == per_epoch - 1:
            say("epoch %3d  loss %.4f" % (epoch + 1, loss))
    with torch.no_grad():
        right = int((model(held_images).argmax(dim=1) == held_labels).sum())
    say("final held-out accuracy %.2f %% (%d of %d)" % (100 * right / len(held_labels), right, len(held_labels)))
    say("final weights SHA-256 %s" % digest(model))
    dist.destroy_process_group()
    return size


def digest(model):
    """The digest of the bytes of all weights."""
    return hashlib.sha256(b"".join(parameter.data.numpy().tobytes() for parameter in model.parameters())).hexdigest()


def fail(options, memory, step):
    """Makes the faults that the options name, each once."""
    for kind, rank, at in options.fault:
        if rank == FIRST_RANK and at == step and (kind, at) not in memory.faults_done:
            memory.faults_done.add((kind, at))
            FAULTS[kind]()


def main():
    options = parse_arguments()
    torch.set_num_threads(1)  # ranks share the host's cores already
    torch.set_default_dtype(torch.float64)
    wrapper = inprocess.Wrapper(
        soft_timeout=datetime.timedelta(seconds=options.soft_timeout),
        hard_timeout=datetime.timedelta(seconds=options.hard_timeout),
        barrier_timeout=datetime.timedelta(seconds=options.hard_timeout + 30),
        progress_watchdog_interval=datetime.timedelta(seconds=min(1, options.soft_timeout / 4)),
    )
    wrapper(train)(options, Memory(), call=None)


if __name__ == "__main__":
    sys.exit(main())
