# SPDX-License-Identifier: Apache-2.0
"""A plain script: arguments that it does not know are an error; SGD with momentum."""

import argparse
import hashlib
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    """Points of the plane, and on which side of a circle they lie."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.points = torch.randn(count, 2, generator=generator)
        self.labels = (self.points.norm(dim=1) > 1.2).long()

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        return index, self.points[index], self.labels[index]


def values(model):
    return [value for parameter in model.parameters() for value in parameter.flatten().tolist()]


parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--samples", type=int, default=512)
args = parser.parse_args()
torch.set_num_threads(1)
torch.manual_seed(7)
model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
training = DataLoader(Points(args.samples, 1), args.batch, shuffle=True)
evaluation = DataLoader(Points(256, 2), args.batch)
seen, steps = [], 0
for epoch in range(args.epochs):
    for index, points, labels in training:
        seen += index.tolist() if epoch == 0 else []
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(points), labels).backward()
        optimizer.step()
        steps += 1
        if steps <= 20:
            print("STEP", json.dumps(values(model)))
with torch.no_grad():
    tested, right = [], 0
    for index, points, labels in evaluation:
        tested += index.tolist()
        right += (model(points).argmax(1) == labels).sum().item()
print("SEEN", json.dumps(seen))
print("TESTED", json.dumps(tested))
print("ACCURACY", right / len(tested))
print("HASH", hashlib.sha256(json.dumps(values(model)).encode()).hexdigest())
