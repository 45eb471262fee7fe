# SPDX-License-Identifier: Apache-2.0
"""A plain script: digits of MNIST, for as long as is asked for. Arguments: the directory of the MNIST files, and seconds to
rest after every step, as a larger model would take them."""

import gzip
import hashlib
import pathlib
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(5)
DATA, REST_S = pathlib.Path(sys.argv[1]), float(sys.argv[2])
SAMPLES, BATCH, EPOCHS = 1920, 64, 16


def read(name, header):
    with gzip.open(DATA / f"train-{name}-ubyte.gz") as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


images = read("images-idx3", 16).reshape(-1, 1, 28, 28)[:SAMPLES] / 255
labels = read("labels-idx1", 8)[:SAMPLES].long()
model = nn.Sequential(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 12 * 12, 48), nn.ReLU(), nn.Linear(48, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
steps = 0
for epoch in range(EPOCHS):
    for batch, answers in DataLoader(TensorDataset(images, labels), BATCH, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), answers)
        loss.backward()
        optimizer.step()
        steps += 1
        print(f"STEP {steps}", flush=True)
        time.sleep(REST_S)
weights = b"".join(weight.detach().numpy().tobytes() for weight in model.parameters())
print(f"TRAINED {steps} steps, loss {loss.item():.4f}")
print(f"WEIGHTS {hashlib.sha256(weights).hexdigest()}", flush=True)
