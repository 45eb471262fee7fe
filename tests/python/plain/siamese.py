# SPDX-License-Identifier: Apache-2.0
"""A plain siamese network: the dataset draws a partner for every sample, of the same class or of another.

    siamese.py                 trains; prints the batches that it was trained on
    siamese.py replay FILE     trains on batches that were printed: of each step those of all workers, and their mean"""

import json
import random
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
torch.manual_seed(11)
random.seed(11)
CLASSES, COUNT = 4, 72
labels = torch.arange(COUNT) % CLASSES
points = torch.randn(CLASSES, 5)[labels] + 0.3 * torch.randn(COUNT, 5)


class Pairs(Dataset):
    """Pairs that are drawn when they are asked for."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        alike = random.random() < 0.5
        while True:
            other = random.randrange(COUNT)
            if (labels[other] == labels[index]).item() == alike:
                return points[index], points[other], torch.tensor(float(alike)), index


model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def contrastive_loss(one, other, alike):
    distance = nn.functional.pairwise_distance(model(one), model(other))
    return (alike * distance.square() + (1 - alike) * nn.functional.relu(1 - distance).square()).mean()


def train_on(parts):
    optimizer.zero_grad()
    sum(contrastive_loss(*part) for part in parts).div(len(parts)).backward()
    optimizer.step()


recorded, seen = [], []
if sys.argv[1:2] == ["replay"]:
    with open(sys.argv[2]) as file:
        for step in json.load(file):
            train_on([[torch.tensor(each) for each in part] for part in step])
else:
    for epoch in range(3):
        for *batch, index in DataLoader(Pairs(), 6, shuffle=True):
            train_on([batch])
            recorded.append([each.tolist() for each in batch])
            seen += index.tolist()
print("NOISE", json.dumps([batch[1] for batch in recorded]))
print("RECORDED", json.dumps(recorded))
print("SEEN", json.dumps(seen))
print("VALUES", json.dumps([value for parameter in model.parameters() for value in parameter.flatten().tolist()]))
