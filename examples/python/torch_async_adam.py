# SPDX-License-Identifier: Apache-2.0
"""Asynchronous training: the servers hold the parameters and apply Adam, no worker waits for another.

    psd_run --workers 3 --servers 1 "python examples/python/torch_async_adam.py"
    psd_run --workers 3 --servers 1 "python examples/python/torch_async_adam.py --staleness 4"

Every gradient is applied as it arrives, so a slow worker (--slow RANK) slows nobody down. With
--staleness N a worker waits only when another is more than N steps behind; with 0 all go together.
The task: a spiral of two arms, told apart by a small network."""

import argparse
import math
import time

import torch
from torch import nn

import poseidon
import poseidon.torch as psd


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300, help="of each worker")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    parser.add_argument("--staleness", type=int, help="default: none, fully asynchronous")
    parser.add_argument("--slow", type=int, help="this rank takes 5 ms more for each step")
    return parser.parse_args()


def spiral(count, random):
    """Points of two arms that wind around each other, and which arm each belongs to."""
    arm = torch.randint(0, 2, (count,), generator=random)
    along = torch.rand(count, generator=random).sqrt() * 2 * math.pi
    angle = along + arm * math.pi
    points = torch.stack([along * angle.cos(), along * angle.sin()], 1) / math.pi
    return points + 0.05 * torch.randn(count, 2, generator=random), arm


def make_model():
    return nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
                         nn.Linear(64, 2))


def main():
    args = parse()
    torch.set_num_threads(1)
    psd.init()
    model = make_model()  # rank 0's initial values count
    optimizer = psd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=args.learning_rate), model=model,
        server_side=True, staleness=args.staleness)
    random = torch.Generator().manual_seed(psd.rank())
    begin = time.monotonic()
    for step in range(args.steps):
        points, arms = spiral(args.batch, random)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(points), arms)
        loss.backward()
        if args.slow == psd.rank():
            time.sleep(0.005)
        optimizer.step()  # takes the values that the servers have now
        if step % 50 == 0:
            poseidon.report(step, name="loss", value=loss.item())
    seconds = time.monotonic() - begin
    poseidon.barrier()  # all gradients are in
    with torch.no_grad():
        points, arms = spiral(2000, torch.Generator().manual_seed(99))
        right = (model(points).argmax(1) == arms).float().mean().item()
    print(f"worker {psd.rank()}: {args.steps / seconds:.0f} steps/s, accuracy {right:.4f}")


if __name__ == "__main__":
    main()
