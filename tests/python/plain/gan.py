# SPDX-License-Identifier: Apache-2.0
"""A plain GAN in the style of DCGAN: convolutions, batch normalization in both networks, an optimizer each; what was made
before the critic's step is judged once more after it.

    gan.py                 trains; prints the batches that it was trained on
    gan.py replay FILE     trains on batches that were printed: of each step those of all workers, and their mean"""

import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
torch.manual_seed(13)
COUNT, NOISE = 72, 4
images = torch.sin(torch.linspace(0, 6, 8) + 6 * torch.rand(COUNT, 1))[:, None]  # waves, one line each


def initialize(part):
    """As DCGAN does."""
    if isinstance(part, (nn.Conv1d, nn.ConvTranspose1d)):
        nn.init.normal_(part.weight, 0.0, 0.1)
    elif isinstance(part, nn.BatchNorm1d):
        nn.init.normal_(part.weight, 1.0, 0.02)
        nn.init.zeros_(part.bias)


generator = nn.Sequential(
    nn.ConvTranspose1d(NOISE, 6, 4, bias=False), nn.BatchNorm1d(6), nn.ReLU(),
    nn.ConvTranspose1d(6, 1, 4, stride=2, padding=1, bias=False), nn.Tanh())
critic = nn.Sequential(
    nn.Conv1d(1, 4, 4, stride=2, padding=1, bias=False), nn.LeakyReLU(0.2),
    nn.Conv1d(4, 6, 3, bias=False), nn.BatchNorm1d(6), nn.LeakyReLU(0.2), nn.Conv1d(6, 1, 2, bias=False), nn.Flatten(0))
generator.apply(initialize)
critic.apply(initialize)
criterion = nn.BCEWithLogitsLoss()
optimizer_g = torch.optim.Adam(generator.parameters(), lr=0.005, betas=(0.5, 0.999))
optimizer_c = torch.optim.Adam(critic.parameters(), lr=0.005, betas=(0.5, 0.999))


def backward_of_mean(losses):
    sum(losses).div(len(losses)).backward()


def train_on(parts):
    critic.zero_grad()
    backward_of_mean([criterion(critic(real), torch.ones(len(real))) for real, _ in parts])
    made = [generator(noise) for _, noise in parts]
    backward_of_mean([criterion(critic(fake.detach()), torch.zeros(len(fake))) for fake in made])
    optimizer_c.step()
    generator.zero_grad()
    backward_of_mean([criterion(critic(fake), torch.ones(len(fake))) for fake in made])
    optimizer_g.step()


recorded, seen = [], []
if sys.argv[1:2] == ["replay"]:
    with open(sys.argv[2]) as file:
        for step in json.load(file):
            train_on([[torch.tensor(each) for each in part] for part in step])
else:
    for epoch in range(3):
        for real, index in DataLoader(TensorDataset(images, torch.arange(COUNT)), 6, shuffle=True):
            batch = [real, torch.randn(len(real), NOISE, 1)]
            train_on([batch])
            recorded.append([each.tolist() for each in batch])
            seen += index.tolist()
print("NOISE", json.dumps([batch[1] for batch in recorded]))
print("RECORDED", json.dumps(recorded))
print("SEEN", json.dumps(seen))
print("STATISTICS", json.dumps([value for model in (generator, critic) for buffer in model.buffers()
                                for value in buffer.flatten().tolist()]))
print("VALUES", json.dumps([value for model in (generator, critic) for parameter in model.parameters()
                            for value in parameter.flatten().tolist()]))
