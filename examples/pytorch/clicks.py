# SPDX-License-Identifier: Apache-2.0
"""Who clicks: DeepFM on files in Criteo's format, with embeddings that are with the servers.

    python3 examples/pytorch/clicks_draw.py data/clicks          draws such files, or take Criteo's
    psd_run --workers 2 --servers 2 "python3 examples/pytorch/clicks.py data/clicks"

An id is the column and the hash that stands there, so nobody has to count them before. docs/sparse.md explains the layers."""

import argparse
import hashlib
import pathlib

import numpy as np
import torch
from clicks_draw import CATEGORIES, COUNTS, auc
from torch import nn
from torch.nn import functional

import poseidon.torch as psd

WIDTH = 4


class DeepFM(nn.Module):
    """An effect of each category, what pairs of them do together, and a small network on top of both."""

    def __init__(self, rate, steps):
        super().__init__()
        how = dict(rule="adagrad", learning_rate=rate, schedule="cosine", period=steps, seed=1)
        self.effects = psd.EmbeddingBag("effects", 1, mode="sum", **how)
        self.factors = psd.Embedding("factors", WIDTH, init="normal", init_value=0.01, **how)
        self.deep = nn.Sequential(nn.Linear(COUNTS + CATEGORIES * WIDTH, 16), nn.ReLU(), nn.Linear(16, 1))
        self.counts = nn.Linear(COUNTS, 1)

    def forward(self, counts, ids):
        factors = self.factors(ids)
        pairs = (factors.sum(1).square() - factors.square().sum(1)).sum(1, keepdim=True) / 2
        deep = self.deep(torch.cat((counts, factors.flatten(1)), 1))
        return (self.effects(ids) + self.counts(counts) + pairs + deep)[:, 0]


def read(path, rank=0, ranks=1):
    """Labels, counts and ids of every line, or of each `ranks`th."""
    labels, counts, ids = [], [], []
    with open(path, encoding="ascii") as file:
        for number, line in enumerate(file):
            if number % ranks != rank:
                continue
            label, *fields = line.rstrip("\n").split("\t")
            labels.append(int(label))
            counts.append([int(field or 0) for field in fields[:COUNTS]])
            ids.append([(column << 33) + (int(field, 16) if field else 1 << 32) for column, field in enumerate(fields[COUNTS:])])
    scaled = np.log1p(np.maximum(counts, 0)).astype(np.float32) - 2
    return torch.tensor(labels, dtype=torch.float32), torch.from_numpy(scaled), torch.tensor(ids)


def train(data, args):
    """Every worker makes equally many steps."""
    labels, counts, ids = data
    size = args.batch // psd.size()
    steps = min(psd.allgather_object(len(labels) // size))
    model = psd.DataParallel(DeepFM(args.rate, args.epochs * steps))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.dense_rate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * steps)
    order = torch.Generator().manual_seed(psd.rank())
    for epoch in range(args.epochs):
        batches = torch.randperm(len(labels), generator=order)[:steps * size].view(steps, size)
        for step, batch in enumerate(batches):
            optimizer.zero_grad()
            loss = functional.binary_cross_entropy_with_logits(model(counts[batch], ids[batch]), labels[batch])
            loss.backward()
            if step + 1 < steps:  # these rows come with the answer to this step's push
                model.module.factors.next(ids[batches[step + 1]])
                model.module.effects.next(ids[batches[step + 1]])
            optimizer.step()
            scheduler.step()
        if psd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}", flush=True)
    return model.eval()


def main():
    """Trains, and tells how well the clicks of test.txt are predicted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=512, help="of all workers together")
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--dense_rate", type=float, default=0.003)
    args = parser.parse_args()

    psd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = train(read(args.directory / "train.txt", psd.rank(), psd.size()), args)
    labels, counts, ids = read(args.directory / "test.txt")
    with torch.no_grad():
        scores = torch.cat([model(*part) for part in zip(counts.split(4096), ids.split(4096))]).numpy()
    print(f"worker {psd.rank()}: AUC {auc(labels.numpy(), scores):.4f}, scores {hashlib.sha256(scores.tobytes()).hexdigest()}")


if __name__ == "__main__":
    main()
