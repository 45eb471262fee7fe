# SPDX-License-Identifier: Apache-2.0
"""torch.distributed from its environment (env://), as torchrun would start it. It knows nothing of
Poseidon. Fits a line, gradients averaged over all ranks."""

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method="env://")
rank, world = dist.get_rank(), dist.get_world_size()
assert (rank, world) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))

torch.manual_seed(rank)
model = torch.nn.Linear(1, 1)
for parameter in model.parameters():
    dist.broadcast(parameter.data, 0)
for _ in range(60):
    x = torch.rand(32, 1) * 2 - 1
    loss = torch.mean((model(x) - (3 * x - 1)) ** 2)
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter -= 0.2 / world * parameter.grad
assert loss.item() < 0.05, loss.item()
print(f"rank {rank} of {world}: slope {model.weight.item():.3f} offset {model.bias.item():.3f}")
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # gloo's threads sometimes abort an interpreter that ends by itself
