# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits with PyTorch. Nothing in here knows of Poseidon:

    python3 examples/pytorch/mnist.py
    psd_run --workers 2 "python3 examples/pytorch/mnist.py"

trains one model in one process, and with two workers as one process with twice the batch would. With --data the
digits are those of MNIST (examples/mnist/fetch.sh fetches them); without, strokes of a pen are drawn."""

import argparse
import gzip
import pathlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# Which of the seven strokes of a pocket calculator's digit are there: top, upper left and right, middle, lower two, bottom.
STROKES = ("1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010", "1111111", "1111011")
PLACES = ((0, 0, 1, 8), (0, 0, 8, 1), (0, 7, 8, 1), (7, 0, 1, 8), (7, 0, 8, 1), (7, 7, 8, 1), (14, 0, 1, 8))


def draw(count, seed):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count)
    images = 0.2 * random.standard_normal((count, 28, 28), np.float32)
    for image, label in zip(images, labels):
        top, left, thick = random.integers(0, 11), random.integers(0, 18), random.integers(1, 3)
        for stroke, (row, column, height, width) in zip(STROKES[label], PLACES):
            if stroke == "1":
                image[top + row:top + row + height + thick, left + column:left + column + width + thick] += 1
    return TensorDataset(torch.from_numpy(images)[:, None], torch.from_numpy(labels))


def read(directory, part):
    images = gzip.open(directory / f"{part}-images-idx3-ubyte.gz").read()[16:]
    labels = gzip.open(directory / f"{part}-labels-idx1-ubyte.gz").read()[8:]
    images = np.frombuffer(images, np.uint8).reshape(-1, 1, 28, 28).astype(np.float32) / 255
    return TensorDataset(torch.from_numpy(images), torch.from_numpy(np.frombuffer(labels, np.uint8).astype(np.int64)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, help="directory of the MNIST files (.gz)")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()

    torch.manual_seed(1)
    train, test = (read(args.data, "train"), read(args.data, "t10k")) if args.data else (draw(4000, 1), draw(1000, 2))
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(),
                          nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 5 * 5, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        for images, labels in DataLoader(train, batch_size=args.batch, shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}", flush=True)

    model.eval()
    with torch.no_grad():
        right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in DataLoader(test, batch_size=500))
    print(f"accuracy: {right / len(test):.4f}")


if __name__ == "__main__":
    main()
