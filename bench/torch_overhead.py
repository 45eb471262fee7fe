#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Poseidon costs a small PyTorch model that has nobody to share with: 1 worker, 1 server.

    .venv-frameworks/bin/python bench/torch_overhead.py [--rounds N] [--bucket_kib A,B,...]

Two copies of one small CNN train in turn in the same process, in blocks of some steps: one as it is,
one as DataParallel, whose gradients go to the server and back. Blocks alternate, so that whatever
else the machine does meets both; medians of the blocks are compared. Target: at most 10 % slower."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parents[1]
TARGET = 0.10


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="blocks of each kind [30]")
    parser.add_argument("--steps", type=int, default=10, help="steps of a block [10]")
    parser.add_argument("--batch", type=int, default=64, help="images of a step [64]")
    parser.add_argument("--bucket_kib", default="1024", help="sizes of buckets to compare [1024]")
    parser.add_argument("--json", type=os.path.abspath,
                        help="append a line for programs to this file")
    return parser.parse_args()


def start_job(args):
    """The same command as the only worker of a job."""
    words = [sys.executable, str(pathlib.Path(__file__).resolve())]
    words += [f"--{key}={value}" for key, value in vars(args).items() if value is not None]
    library = (TREE / "bin" / "ps_server").resolve().parent / "libpsd.so.0"
    environment = {"PYTHONPATH": str(TREE / "python"), "PSD_LIB": str(library), **os.environ}
    with tempfile.TemporaryDirectory(prefix="psd_overhead") as directory:  # for the logs
        return subprocess.run([str(TREE / "bin" / "psd_run"), "--workers", "1", "--servers", "1",
                               " ".join(words)], env=environment, cwd=directory,
                              check=False).returncode


def small_cnn(torch):
    nn = torch.nn
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 12 * 12, 64), nn.ReLU(),
                         nn.Linear(64, 10))


def block(torch, model, optimizer, data, steps):
    """Seconds of one step, mean of a block."""
    begin = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data[0]), data[1]).backward()
        optimizer.step()
    return (time.perf_counter() - begin) / steps


def worker(args):
    import torch

    import poseidon.torch as psd

    torch.set_num_threads(1)
    psd.init()
    data = torch.randn(args.batch, 1, 28, 28), torch.randint(0, 10, (args.batch,))
    sizes = [int(word) for word in args.bucket_kib.split(",")]
    models = {"without": small_cnn(torch)}
    for size in sizes:
        models[size] = psd.DataParallel(small_cnn(torch), bucket_bytes=size << 10)
    optimizers = {kind: torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
                  for kind, model in models.items()}
    times = {kind: [] for kind in models}
    for kind in models:
        block(torch, models[kind], optimizers[kind], data, 5)
    for _ in range(args.rounds):
        for kind, seconds in times.items():
            seconds.append(block(torch, models[kind], optimizers[kind], data, args.steps))
    plain = statistics.median(times["without"])
    for size in sizes:
        # neighbours in time are compared: what slows the machine down slows both
        ratio = statistics.median(ours / theirs
                                  for ours, theirs in zip(times[size], times["without"]))
        verdict = "met" if ratio <= 1 + TARGET else "MISSED"
        print(f"overhead: step {plain * 1e3:.2f} ms without, "
              f"{statistics.median(times[size]) * 1e3:.2f} ms with Poseidon (buckets of {size} KiB):"
              f" {100 * (ratio - 1):+.1f} %, target <= {100 * TARGET:.0f} %: {verdict}", flush=True)
        if args.json:
            line = {"name": "torch_overhead", "bucket_kib": size, "value": ratio - 1,
                    "unit": "ratio", "step_s": plain, "target": TARGET}
            with open(args.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    if "PSD_MASTER_ADDRESS" in os.environ:
        worker(parse())
    else:
        sys.exit(start_job(parse()))
