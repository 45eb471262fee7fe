# SPDX-License-Identifier: Apache-2.0
"""What workers of test_ray.py do, by themselves and on a Ray cluster."""

import os
import pathlib
import time

import numpy as np

import poseidon


def add_up(rate, steps=3):
    """Numbers that one can check by hand, and this worker's place."""
    table = poseidon.Table("w", 4, learning_rate=rate)
    for _ in range(steps):
        values = table.push_pull(np.full(4, poseidon.rank() + 1, np.float32)).wait()
    return {"rank": poseidon.rank(), "values": values, "local_rank": poseidon.local_rank(),
            "nodes": int(os.environ["PSD_NUM_NODES"]), "pid": os.getpid()}


def one_raises():
    """The others wait for it."""
    if poseidon.rank() == 1:
        raise ValueError("no luck")
    poseidon.barrier()


def wait_beside(directory, *_ignored):
    """Tells its process, then rank 0 waits for the others, and these for the end of the test."""
    path = pathlib.Path(directory)
    beginning = path / f".{poseidon.rank()}"
    beginning.write_text(str(os.getpid()))
    beginning.rename(path / f"{poseidon.rank()}")
    if poseidon.rank() == 0:
        poseidon.barrier()
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and not (path / "end").exists():
        time.sleep(0.02)
    if poseidon.rank() != 0:
        poseidon.barrier()
    return poseidon.rank()


def train_digits(images, labels, steps, batch, rank=None, size=None):
    """Weights after `steps` of SGD on the batch that all workers share, and how many digits it then reads. With
    rank=0, size=1 in a process of its own."""
    import torch

    import poseidon.torch as psd

    alone = size == 1
    rank, size = (rank, size) if alone else (psd.rank(), psd.size())
    torch.manual_seed(7 if alone or rank == 0 else 100 + rank)
    x, y = torch.tensor(images, dtype=torch.float64) / 255, torch.tensor(labels, dtype=torch.int64)
    net = torch.nn.Sequential(torch.nn.Linear(784, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)).double()
    model = net if alone else psd.DataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for step in range(steps):
        first = step * batch % (len(x) - batch + 1)
        mine = slice(first + rank * batch // size, first + (rank + 1) * batch // size)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[mine]), y[mine]).backward()
        optimizer.step()
    right = int((net(x).argmax(1) == y).sum())
    return [parameter.detach().numpy() for parameter in net.parameters()], right
