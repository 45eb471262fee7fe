# SPDX-License-Identifier: Apache-2.0
"""A plain script: Adam, a learning-rate schedule over all steps, evaluation after each epoch, the best
weights kept in a file. One argument: the batch size."""

import hashlib
import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(3)
BATCH, EPOCHS = int(sys.argv[1]), 10


def make(count, seed):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(count, 4, generator=generator)
    labels = (points[:, 0] * points[:, 1] > 0).long() + 2 * (points[:, 2] > points[:, 3]).long()
    return TensorDataset(torch.arange(count), points, labels)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 32)
        self.last = nn.Linear(32, 4)

    def forward(self, points):
        return self.last(torch.relu(self.first(points)))


def values(module):
    return [value for parameter in module.parameters() for value in parameter.flatten().tolist()]


def evaluate():
    model.eval()
    right = 0
    tested.clear()
    for index, points, labels in evaluation:
        tested.extend(index.tolist())
        right += (model(points).argmax(1) == labels).sum().item()
    model.train()
    return right / len(evaluation.dataset)


model = Network()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
training = DataLoader(make(1000, 1), BATCH, shuffle=True, generator=torch.Generator().manual_seed(5))
evaluation = DataLoader(make(300, 2), 50)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.03, total_steps=EPOCHS * len(training))
best, seen, tested, steps = 0.0, [], [], 0
for epoch in range(EPOCHS):
    for index, points, labels in training:
        seen += index.tolist() if epoch == 0 else []
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(points), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        steps += 1
        if steps <= 20:
            print("STEP", json.dumps(values(model)))
    accuracy = evaluate()
    if accuracy > best:
        best = accuracy
        torch.save(model.state_dict(), "best.pt")
model.load_state_dict(torch.load("best.pt"))
print("STEPS", steps, "RATE", optimizer.param_groups[0]["lr"])
print("SEEN", json.dumps(seen))
print("TESTED", json.dumps(tested))
print("ACCURACY", best)
print("HASH", hashlib.sha256(json.dumps(values(model)).encode()).hexdigest())
