# SPDX-License-Identifier: Apache-2.0
"""A plain diffusion model of points on a circle: noise and time steps are drawn in the loop.

    diffusion.py                 trains; prints the batches that it was trained on
    diffusion.py replay FILE     trains on batches that were printed: of each step those of all workers, and their mean"""

import json
import math
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
torch.manual_seed(12)
COUNT, TIMES = 72, 50
angles = 2 * math.pi * torch.rand(COUNT)
circle = torch.stack([angles.cos(), angles.sin()], dim=1)
kept = torch.cumprod(1 - torch.linspace(1e-4, 0.05, TIMES), dim=0)  # of the signal, after each time step


class Denoiser(nn.Module):
    """Guesses the noise in a point, by the time step."""

    def __init__(self):
        super().__init__()
        self.times = nn.Embedding(TIMES, 4)
        self.body = nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 2))

    def forward(self, noisy, times):
        return self.body(torch.cat([noisy, self.times(times)], dim=1))


model = Denoiser()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
average = [parameter.detach().clone() for parameter in model.parameters()]


def loss_of(clean, times, noise):
    signal = kept[times][:, None]
    return nn.functional.mse_loss(model(signal.sqrt() * clean + (1 - signal).sqrt() * noise, times), noise)


def train_on(parts):
    optimizer.zero_grad()
    sum(loss_of(*part) for part in parts).div(len(parts)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    with torch.no_grad():
        for mean, parameter in zip(average, model.parameters()):
            mean.lerp_(parameter, 0.1)


recorded, seen = [], []
if sys.argv[1:2] == ["replay"]:
    with open(sys.argv[2]) as file:
        for step in json.load(file):
            train_on([[torch.tensor(each) for each in part] for part in step])
else:
    loader = DataLoader(TensorDataset(circle, torch.arange(COUNT)), 6, shuffle=True)
    for epoch in range(3):
        for clean, index in loader:
            batch = [clean, torch.randint(TIMES, (len(clean),)), torch.randn_like(clean)]
            train_on([batch])
            recorded.append([each.tolist() for each in batch])
            seen += index.tolist()
print("NOISE", json.dumps([batch[2] for batch in recorded]))
print("RECORDED", json.dumps(recorded))
print("SEEN", json.dumps(seen))
print("VALUES", json.dumps([value for values in (model.parameters(), average) for each in values
                            for value in each.flatten().tolist()]))
