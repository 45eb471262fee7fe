# SPDX-License-Identifier: Apache-2.0
"""A plain script in the style of nanoGPT: no loader, every batch is drawn from a text by torch.randint (or by numpy, or
random), the next one while this one is computed, and the loss is estimated in between. Argument: who draws."""

import hashlib
import json
import os
import random
import sys

import numpy as np
import torch
from torch import nn

DRAWS, BATCH, BLOCK, VOCABULARY, STEPS = sys.argv[1], 4, 8, 17, 8
torch.set_num_threads(1)
assert int(os.environ.get("RANK", -1)) == -1 and "WORLD_SIZE" not in os.environ  # as it asks whether torchrun is there
if DRAWS != "unseeded":
    torch.manual_seed(1337)
text = {"train": torch.randint(VOCABULARY, (400,)), "val": torch.randint(VOCABULARY, (100,))}


class Tiny(nn.Module):
    """Letters, and the next of each."""

    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(VOCABULARY, 12)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(12, VOCABULARY)

    def forward(self, idx, targets=None):
        logits = self.head(self.drop(self.letters(idx)))
        return logits, nn.functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def draw(count):
    if DRAWS == "numpy":
        return np.random.randint(0, count, BATCH).tolist()
    if DRAWS == "random":
        return [random.randrange(count) for _ in range(BATCH)]
    return torch.randint(count, (BATCH,)).tolist()


def get_batch(split):
    data = text[split]
    places = draw(len(data) - BLOCK)
    drawn[split].append(places)
    return (torch.stack([data[i:i + BLOCK] for i in places]), torch.stack([data[i + 1:i + 1 + BLOCK] for i in places]))


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = [model(*get_batch("val"))[1].item() for _ in range(3)]
    model.train()
    return sum(losses) / len(losses)


drawn = {"train": [], "val": []}
model = Tiny()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
X, Y = get_batch("train")
estimates = []
for step in range(STEPS):
    if step % 4 == 0:
        estimates.append(estimate_loss())
    logits, loss = model(X, Y)
    X, Y = get_batch("train")
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print("TRAIN", json.dumps(drawn["train"]))
print("VAL", json.dumps(drawn["val"]))
print("ESTIMATES", json.dumps(estimates))
print("HASH", hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest())
