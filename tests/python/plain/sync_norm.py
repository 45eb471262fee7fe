# SPDX-License-Identifier: Apache-2.0
"""A plain script with layers of SyncBatchNorm. Arguments: the batch size and the number of samples."""

import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, SAMPLES = map(int, sys.argv[1:])
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
torch.manual_seed(5)
data = TensorDataset(2 + 3 * torch.randn(SAMPLES, 2, 4, 4), torch.randint(3, (SAMPLES,)))
model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(
    nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 6),
    nn.BatchNorm1d(6, momentum=None, affine=False), nn.Tanh(), nn.Linear(6, 3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
evaluated = []
for epoch in range(2):
    model.train()
    for images, labels in DataLoader(data, BATCH, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        evaluated.append(sum(model(images).square().sum().item() for images, _ in DataLoader(data, BATCH)))
state = [value for each in model.state_dict().values() for value in each.flatten().tolist()]
print("HASH", sum(state))
print("VALUES", json.dumps(state + evaluated))
