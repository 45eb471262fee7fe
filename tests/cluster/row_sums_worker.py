# SPDX-License-Identifier: Apache-2.0
"""A worker that trains rows by itself: servers only add what all workers push (sums of rows).

The gradients of a step depend on the weights that the sums before it have made, so a sum that is lost, counts twice, or is
that of another step changes everything after it. `--large` pushes more than a frame holds. `--hold STEP:FILE` makes rank 0
wait for that file before the step, or at the end (closing:FILE). `--die RANK:STEP` kills that rank in the middle of a step.
Prints a line per step, and at the end a SHA-256 of the weights, and how many rows were pushed by what the sums say."""

import argparse
import hashlib
import os
import pathlib
import signal
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import poseidon  # noqa: E402


def say(text):
    print(text, flush=True)


class Rows:
    """Weights by id, which this program keeps, and the table in which their gradients are added."""

    def __init__(self, name, width, ids, pushed, dtype="float32", reduce="mean"):
        self.sums = poseidon.SparseTable(name, width, dtype, use="sum", reduce=reduce)
        self.weights = np.zeros((ids, width), np.float32)
        self.pushed = pushed
        self.dtype = np.dtype(dtype)

    def push(self, draw, step):
        """Now and then a worker has no row."""
        ids = draw.integers(0, len(self.weights), 0 if (poseidon.rank() + step) % 7 == 0 else self.pushed)
        gradients = draw.standard_normal((ids.size, self.weights.shape[1]), np.float32) + self.weights[ids]
        return self.sums.push(ids, gradients.astype(self.dtype))

    def train(self, ids, sums):
        assert (ids[1:] > ids[:-1]).all(), "ids rise, each once"
        self.weights[ids] -= np.float32(0.125) * sums.astype(np.float32)


class Ledger:
    """Counts rows: every worker pushes as many as the step says."""

    def __init__(self):
        self.sums = poseidon.SparseTable("ledger", 1, use="sum", reduce="sum")
        self.seen = 0

    def push(self, _, step):
        return self.sums.push(np.arange(step % 5 + 1), np.ones((step % 5 + 1, 1), np.float32))

    def train(self, ids, sums):
        self.seen += int(sums.sum())


def hold(args, step):
    path = dict(one.split(":", 1) for one in args.hold).get(str(step))
    if poseidon.rank() != 0 or path is None:
        return
    gate = pathlib.Path(path)
    say("holding")
    deadline = time.monotonic() + 120
    while not gate.exists():
        assert time.monotonic() < deadline, f"{gate}: nobody opened the gate"
        time.sleep(0.005)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--hold", action="append", default=[])
    parser.add_argument("--die", default="", help="RANK:STEP")
    args = parser.parse_args()
    poseidon.init()
    if args.large:
        trained = [Rows("large", 32, 200_000, 220_000)]
    else:
        trained = [Rows("mean", 8, 3000, 200), Rows("half", 3, 500, 100, "float16", "sum")]
    ledger = Ledger()
    tables = [*trained, ledger]
    for step in range(args.steps):
        hold(args, step)
        draw = np.random.default_rng([poseidon.rank(), step])
        futures = [table.push(draw, step) for table in tables]
        if args.die == f"{poseidon.rank()}:{step}":
            say("dying")
            os.kill(os.getpid(), signal.SIGKILL)
        for table, future in zip(tables, futures):
            table.train(*future.wait())
        say(f"step {step}")
    hold(args, "closing")
    poseidon.barrier()
    digest = hashlib.sha256()
    for table in trained:
        digest.update(table.weights.tobytes())
    say(f"rows {ledger.seen} of {poseidon.size() * sum(step % 5 + 1 for step in range(args.steps))}")
    say(f"values {digest.hexdigest()[:40]}")
    poseidon.close()


main()
