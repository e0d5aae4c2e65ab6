"""Data-parallel training with JAX that survives the loss of hosts.

    rlaunch -f hosts --min-world 3 --max-restarts 1 --preempt-retries 3 python3 jax_multihost.py

If a host is about to be taken away, every process gets SIGTERM. JAX's preemption service then chooses a step that all
processes reach. They save there and exit, and rlaunch starts them again on the other hosts. The file of --checkpoint must
be on a file system that all hosts share.
"""

import argparse
import os
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np

jax.distributed.initialize()

from jax.experimental import multihost_utils  # noqa: E402

TRUE = np.arange(1.0, 5.0, dtype=np.float32)


def batch(step):
    """The part of a step's data for this process."""
    rng = np.random.default_rng([step, jax.process_index()])
    x = rng.normal(size=(32, TRUE.size)).astype(np.float32)
    return x, x @ TRUE


@jax.jit
def gradient(weights, x, y):
    return jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(weights)


def load(path):
    if not path.exists():
        return 0, np.zeros_like(TRUE)
    with np.load(path) as saved:
        return int(saved["step"]), saved["weights"]


def save(path, step, weights):
    """Saves the weights. One process writes, and the file is whole at every moment."""
    if jax.process_index() == 0:
        partial = path.with_name(path.name + ".partial.npz")
        np.savez(partial, step=step, weights=weights)
        os.replace(partial, path)


def say(text):
    # One system call: lines of several processes do not mix.
    os.write(1, f"{text}\n".encode())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--step-time", type=float, default=0.0, help="the least duration of a step in seconds")
    parser.add_argument("--checkpoint", type=pathlib.Path, default=pathlib.Path("jax_multihost.npz"))
    args = parser.parse_args()
    start, weights = load(args.checkpoint)
    say(f"process {jax.process_index()} of {jax.process_count()} starts at step {start}")
    for step in range(start, args.steps):
        if multihost_utils.reached_preemption_sync_point(step):
            save(args.checkpoint, step, weights)
            return say(f"process {jax.process_index()} stops at step {step}")
        begin = time.monotonic()
        loss, own = gradient(weights, *batch(step))
        mean = multihost_utils.process_allgather(own).reshape(-1, TRUE.size).mean(axis=0)
        weights = weights - 0.1 * mean
        if jax.process_index() == 0 and step % 10 == 0:
            save(args.checkpoint, step, weights)
            say(f"step {step} of {jax.process_count()} processes: loss {float(loss):.4f}")
        time.sleep(max(0.0, begin + args.step_time - time.monotonic()))
    save(args.checkpoint, args.steps, weights)
    say(f"process {jax.process_index()} of {jax.process_count()} is done: {np.round(np.asarray(weights), 2).tolist()}")


main()
