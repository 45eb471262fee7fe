# SPDX-License-Identifier: Apache-2.0
"""A plain script that trains on a stream (IterableDataset). Arguments: which, how many samples it has; and perhaps a file
with the samples that the workers of a job have trained on in each step: then this process trains on them together.

plain       one sample after the other
shuffled    through a buffer, by random and torch
processes   divided among two processes of the loader, shuffled there
endless     has no end; the script makes ten steps"""

import hashlib
import itertools
import json
import random
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

KIND, COUNT = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
values = torch.randn(COUNT, 3, generator=torch.Generator().manual_seed(1))
targets = values.sum(1, keepdim=True) + 0.3


class Samples(IterableDataset):
    """Numbers of samples with their values."""

    def __init__(self, shuffled):
        self.shuffled = shuffled

    def __len__(self):
        return COUNT

    def __iter__(self):
        info = get_worker_info()
        first, every = (0, 1) if info is None else (info.id, info.num_workers)
        numbers = itertools.cycle(range(COUNT)) if KIND == "endless" else range(first, COUNT, every)
        return self.walk(iter(numbers)) if self.shuffled else map(sample, numbers)

    @staticmethod
    def walk(numbers):
        buffer = list(itertools.islice(numbers, 8))
        random.shuffle(buffer)
        while buffer:
            chosen = random.randrange(len(buffer)) if torch.rand(1) < 0.5 else 0
            yield sample(buffer.pop(chosen))
            buffer.extend(itertools.islice(numbers, 1))


def sample(number):
    return number, values[number], targets[number]


def step(points, wanted):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(points), wanted).backward()
    optimizer.step()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
seen, tested, length = [], [], None
if len(sys.argv) > 3:
    with open(sys.argv[3], encoding="utf-8") as file:
        for numbers in json.load(file):
            step(values[numbers], targets[numbers])
elif KIND == "endless":
    for index, points, wanted in itertools.islice(DataLoader(Samples(False), 4), 10):
        step(points, wanted)
        seen.append(index.tolist())
else:
    loader = DataLoader(Samples(KIND != "plain"), 4, num_workers=2 * (KIND == "processes"))
    for index, points, wanted in DataLoader(Samples(False), 4):  # as if to train
        tested.extend(index.tolist())
    for epoch in range(2):
        model.train()
        for index, points, wanted in loader:
            step(points, wanted)
            seen.append(index.tolist())
        length = len(loader)
        model.eval()
        for index, points, wanted in DataLoader(Samples(False), 4):  # with gradients on
            model(points)
            tested.extend(index.tolist())
        with torch.no_grad():
            tested.extend(number for batch in loader for number in batch[0].tolist())
print("SEEN", json.dumps(seen))
print("TESTED", json.dumps(sorted(tested)))
print("LENGTH", length)
print("HASH", hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in model.parameters())).hexdigest())
print("VALUES", json.dumps([value for each in model.parameters() for value in each.flatten().tolist()]))
