# SPDX-License-Identifier: Apache-2.0
"""A plain script: four backwards to a step, a data loader with processes of its own, values of gradients
limited by hand. One argument: the batch size."""

import hashlib
import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, EPOCHS, PASSES = int(sys.argv[1]), 8, 4


def make(count, seed):
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(count, 3, generator=generator)
    return TensorDataset(torch.arange(count), points, (points.sum(1) > 1.5).float())


def values(module):
    return [value for parameter in module.parameters() for value in parameter.flatten().tolist()]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(3, 24), nn.GELU(), nn.Linear(24, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)
    training = DataLoader(make(640, 1), BATCH, shuffle=True, num_workers=1, drop_last=True)
    evaluation = DataLoader(make(200, 2), 64)
    seen, tested, steps = [], [], 0
    for epoch in range(EPOCHS):
        optimizer.zero_grad()
        for number, (index, points, labels) in enumerate(training):
            seen += index.tolist() if epoch == 0 else []
            outputs = model(points).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(outputs, labels)
            (loss / PASSES).backward()
            if number % PASSES == PASSES - 1:
                for parameter in model.parameters():
                    parameter.grad.clamp_(-0.05, 0.05)
                optimizer.step()
                optimizer.zero_grad()
                steps += 1
                if steps <= 20:
                    print("STEP", json.dumps(values(model)))
    right = 0
    with torch.inference_mode():
        for index, points, labels in evaluation:
            tested += index.tolist()
            right += ((model(points).squeeze(1) > 0) == (labels > 0.5)).sum().item()
    print("SEEN", json.dumps(seen))
    print("TESTED", json.dumps(tested))
    print("ACCURACY", right / len(tested))
    print("HASH", hashlib.sha256(json.dumps(values(model)).encode()).hexdigest())


if __name__ == "__main__":
    main()
