# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits with PyTorch: every worker trains on its share, the model is one.

    psd_run --workers 2 --servers 1 "python examples/python/torch_mnist.py"
    psd_run --workers 2 --servers 1 "python examples/python/torch_mnist.py --data data/mnist"

Without --data (examples/mnist/fetch.sh fetches the files) digits are drawn: seven-by-five letters,
moved, scaled and blurred by chance; one or two workers read more than nine of ten after three epochs,
more workers make fewer steps in an epoch and want more of them (--epochs). What makes it distributed
is marked with (1) to (4)."""

import argparse
import gzip
import hashlib
import pathlib

import numpy as np
import torch
from torch import nn

import poseidon.torch as psd

GLYPHS = ("01110 10001 10011 10101 11001 10001 01110", "00100 01100 00100 00100 00100 00100 01110",
          "01110 10001 00001 00110 01000 10000 11111", "11111 00010 00100 00010 00001 10001 01110",
          "00010 00110 01010 10010 11111 00010 00010", "11111 10000 11110 00001 00001 10001 01110",
          "00110 01000 10000 11110 10001 10001 01110", "11111 00001 00010 00100 01000 01000 01000",
          "01110 10001 10001 01110 10001 10001 01110", "01110 10001 10001 01111 00001 00010 01100")


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, help="directory of the MNIST files (.gz)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="images of a step, on each worker")
    parser.add_argument("--samples", type=int, default=4000, help="digits to draw, or to use")
    parser.add_argument("--learning_rate", type=float, default=0.02,
                        help="of the first epoch; it falls to 0 with the epochs")
    parser.add_argument("--save", help="file for the trained model")
    return parser.parse_args()


def read(directory, name, header):
    with gzip.open(directory / f"{name}.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


def read_digits(directory, part, limit):
    labels = read(directory, f"{part}-labels-idx1-ubyte", 8)
    images = read(directory, f"{part}-images-idx3-ubyte", 16).reshape(-1, 28, 28)
    return torch.tensor(images[:limit] / 255, dtype=torch.float32)[:, None], \
        torch.tensor(labels[:limit], dtype=torch.int64)


def draw_digits(count, seed):
    """The same on every worker, because the seed is."""
    random = np.random.default_rng(seed)
    glyphs = np.array([[list(map(int, row)) for row in glyph.split()] for glyph in GLYPHS],
                      np.float32)
    labels = random.integers(0, 10, count)
    images = np.zeros((count, 28, 28), np.float32)
    for image, label in zip(images, labels):
        height, width = random.integers(2, 4, 2)
        glyph = np.kron(glyphs[label], np.ones((height, width), np.float32))
        top, left = (random.integers(0, 28 - size + 1) for size in glyph.shape)
        image[top:top + glyph.shape[0], left:left + glyph.shape[1]] = glyph
    images += 0.2 * random.standard_normal(images.shape, np.float32)
    return torch.from_numpy(images)[:, None], torch.from_numpy(labels)


def load(args):
    if args.data is None:
        return draw_digits(args.samples, 1), draw_digits(1000, 2)
    return read_digits(args.data, "train", args.samples), read_digits(args.data, "t10k", 10000)


def make_model():
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(),
                         nn.Linear(64, 10))


def accuracy(model, images, labels):
    model.eval()
    with torch.no_grad():
        right = sum((model(part).argmax(1) == answer).sum().item()
                    for part, answer in zip(images.split(500), labels.split(500)))
    model.train()
    return right / len(labels)


def digest(model):
    """Equal on all workers when their parameters have the same bits."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()[:16]


def main():
    args = parse()
    torch.set_num_threads(1)
    psd.init()  # (1) joins the job
    torch.manual_seed(psd.rank())  # the same in every run, and every worker has an order of its own
    train, test = load(args)
    mine = torch.utils.data.TensorDataset(*(part[psd.rank()::psd.size()] for part in train))
    loader = torch.utils.data.DataLoader(mine, args.batch, shuffle=True)  # (2) this worker's share
    model = psd.DataParallel(make_model())  # (3) rank 0's weights, everybody's gradients
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=0.9,
                                nesterov=True)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, args.epochs)
    for epoch in range(args.epochs):
        with model.join(optimizer):  # (4) shares may differ by a batch
            for images, labels in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
        scheduler.step()
        if psd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}, "
                  f"accuracy {accuracy(model.module, *test):.4f}", flush=True)
    if psd.rank() == 0 and args.save:
        torch.save(model.module.state_dict(), args.save)
    print(f"parameters {digest(model)}")


if __name__ == "__main__":
    main()
