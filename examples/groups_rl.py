#!/usr/bin/env python3
"""GRPO in small: a controller, a policy on 2 x 2 workers, and generation on the same slots. Needs NumPy.

    rlaunch -n 1 --lead python examples/groups_rl.py

A prompt is a vector, a completion one of 8 tokens, and the reward is 1 for the right token. Each step has four phases: generate a group of
completions for each prompt, score them, train the policy with their advantages, and hand the new weights to generation.
"""

import os

import numpy as np

from rlaunch.groups import NamedSharding, WorkerGroup, get

FEATURES, TOKENS, PROMPTS, GROUP, STEPS = 16, 8, 64, 16, 40


class Generation:
    """Worker that has all weights, and samples completions."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed + int(os.environ["RANK"]))

    def set_weights(self, weights):
        self.weights = weights

    def generate(self, prompts, group):
        logits = prompts @ self.weights
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        draws = self.rng.random((len(prompts), group, 1))
        tokens = (draws > odds.cumsum(axis=1)[:, None, :]).sum(axis=2).clip(0, TOKENS - 1)
        return {"tokens": tokens, "odds": odds}


class Policy:
    """Worker with the weights of some tokens (tensor parallel). It trains with a part of the prompts (data parallel)."""

    def __init__(self, tensor_parallel):
        shard = int(os.environ["RANK"]) % tensor_parallel
        width = TOKENS // tensor_parallel
        self.columns = slice(shard * width, (shard + 1) * width)
        self.weights = np.zeros((FEATURES, width))

    def gradient(self, batch):
        taken = np.eye(TOKENS)[batch["tokens"]] - batch["odds"][:, None, :]
        push = (taken * batch["advantages"][:, :, None]).mean(axis=1)
        return batch["prompts"].T @ push[:, self.columns]

    def step(self, gradient, rate):
        self.weights += rate * gradient

    def get_weights(self):
        return self.weights

    def shutdown(self):
        return True


def split(batch, parts):
    """Splits a batch into parts, one for each shard."""
    return [{name: part for name, part in zip(batch, values)} for values in zip(*(np.array_split(value, parts) for value in batch.values()))]


def main():
    layout = NamedSharding([[0, 1], [2, 3]], ["data_parallel", "tensor_parallel"])
    policy = WorkerGroup(Policy, kwargs={"tensor_parallel": 2}, n=4, sharding=layout, name="policy")
    flat = NamedSharding([0, 1, 2, 3], ["data_parallel"])
    generation = WorkerGroup(Generation, kwargs={"seed": 7}, n=4, sharding=flat, name="generation", share="policy")
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(FEATURES, TOKENS))
    for step in range(STEPS):
        # Refit: one shard of the weights from each tensor-parallel rank, all of them to each generation worker.
        shards = get(policy.run_all_workers_single_data("get_weights", run_rank_0_only_axes=["data_parallel"]))
        get(generation.run_all_workers_single_data("set_weights", weights=np.concatenate(shards, axis=1)))

        prompts = rng.normal(size=(PROMPTS, FEATURES))
        bundle = generation.run_all_workers_sharded_data(
            "generate", prompts=np.array_split(prompts, 4), in_sharded_axes=["data_parallel"], common_kwargs={"group": GROUP}
        )
        parts = generation.get_all_worker_results(bundle)
        tokens = np.concatenate([part["tokens"] for part in parts])
        odds = np.concatenate([part["odds"] for part in parts])

        rewards = (tokens == (prompts @ truth).argmax(axis=1)[:, None]).astype(float)
        advantages = (rewards - rewards.mean(axis=1, keepdims=True)) / (rewards.std(axis=1, keepdims=True) + 1e-6)

        batch = {"prompts": prompts, "tokens": tokens, "odds": odds, "advantages": advantages}
        bundle = policy.run_all_workers_sharded_data(
            "gradient", batch=split(batch, 2), in_sharded_axes=["data_parallel"], replicate_on_axes=["tensor_parallel"]
        )
        gradients = policy.get_all_worker_results(bundle)
        # Ranks 0 and 2 have the first tokens. Ranks 1 and 3 have the other tokens.
        means = [(gradients[0] + gradients[2]) / 2, (gradients[1] + gradients[3]) / 2]
        get(policy.run_all_workers_multiple_data("step", gradient=means * 2, common_kwargs={"rate": 0.2}))
        if step % 10 == 0 or step == STEPS - 1:
            print(f"step {step}: reward {rewards.mean():.2f}", flush=True)
    assert generation.shutdown() and policy.shutdown(cleanup_method="shutdown")


if __name__ == "__main__":
    main()
