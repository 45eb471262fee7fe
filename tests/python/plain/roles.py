# SPDX-License-Identifier: Apache-2.0
"""A plain script whose loops tell late, or never, whether they train. Arguments: which of them, with commas between
them, the batch size, how many samples there are, and the steps of "cycle"."""

import itertools
import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KINDS, (BATCH, COUNT, STEPS) = sys.argv[1].split(","), map(int, sys.argv[2:])
torch.set_num_threads(1)
torch.manual_seed(5)
data = TensorDataset(torch.arange(COUNT), torch.randn(COUNT, 3), torch.randn(COUNT, 1))
held = TensorDataset(torch.arange(1000, 1030), torch.randn(30, 3), torch.randn(30, 1))


def loss_of(points, targets):
    return nn.functional.mse_loss(model(points), targets)


def train_on(batch, note=True):
    index, points, targets = batch
    if KIND in ("late", "late_in_processes", "ahead_and_late"):
        model.train()  # as HuggingFace's Trainer does
    optimizer.zero_grad()
    loss_of(points, targets).backward()
    optimizer.step()
    seen.extend(index.tolist() if note else [])


def evaluate():
    """In eval mode, with gradients or without; forgets to go back to training mode."""
    if KIND not in ("never_eval", "skips"):
        model.eval()
    total = 0.0
    for index, points, targets in validation:
        if KIND == "no_grad_inside":
            with torch.no_grad():
                total += loss_of(points, targets).item() * len(index)
        else:
            total += loss_of(points, targets).item() * len(index)
        tested.extend(index.tolist())
    return total


def ahead(batches):
    """Fetches a batch while the one before is in use, as accelerate does."""
    batches = iter(batches)
    current = next(batches)
    for following in batches:
        yield current
        current = following
    yield current


for KIND in KINDS:
    print("KIND", KIND)
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    processes = 2 if KIND == "late_in_processes" else 0
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=processes)
    validation = DataLoader(held, 4, num_workers=processes)
    seen, tested = [], []
    if KIND == "evaluate_first":
        evaluate()
    if KIND == "peek":
        print("PEEK", len(next(iter(loader))[0]), len(next(iter(validation))[0]))
    if KIND == "cycle":
        for batch in itertools.islice(itertools.cycle(loader), STEPS):
            train_on(batch)
    else:
        for epoch in range(3):
            for number, batch in enumerate(ahead(loader) if KIND.startswith("ahead") else loader):
                if KIND == "skips" and number < 3:
                    continue  # as scripts do that resume in the middle of an epoch
                train_on(batch)
            evaluate()
        if KIND == "own_training_set":
            model.eval()
            tested = [number for index, points, targets in loader for number in (index.tolist(), loss_of(points, targets))[0]]
        if KIND == "counts":  # takes as many batches as it was told that there are, as engines of Ignite do
            for each in (loader, DataLoader(held, 32)):
                model.train()
                for _, (index, points, targets) in zip(range(len(each)), each):
                    model.eval()
                    tested.extend(index.tolist())
    print("SEEN", json.dumps(seen))
    print("TESTED", json.dumps(sorted(tested)))
    print("VALUES", json.dumps([value for parameter in model.parameters() for value in parameter.flatten().tolist()]))
