# SPDX-License-Identifier: Apache-2.0
"""A worker with sparse tables of several kinds, whose rows at the end do not depend on who was killed meanwhile.

`--gate FILE` makes rank 0 wait for that file at the end, so that the job is still there when the last server is killed.
`--large` keeps one table, large enough that rounds close while a new copy of it is made. Prints a line per step, and a
SHA-256 of all rows of all tables: a push that is lost, or counts twice, changes it."""

import argparse
import hashlib
import pathlib
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import poseidon  # noqa: E402

IDS = 3000
LARGE_IDS = 150_000


def say(text):
    print(text, flush=True)


def tables_of(args):
    """By name; and whose gradients are small integers, which have the same sum in any order."""
    if args.large:
        return [(poseidon.SparseTable("large", 16, rule="adagrad", learning_rate=0.1, init="uniform", init_value=1), False)]
    rows = dict(init="uniform", init_value=1, seed=3)
    going = {"idle_steps": 7, "sweep_every": 4} if args.going else {}
    return [
        (poseidon.SparseTable("adagrad", 8, rule="adagrad", learning_rate=0.1, **rows, **going), False),
        (poseidon.SparseTable("adam", 3, "float16", rule="adam", learning_rate=0.01, admit_after=3, **rows), False),
        (poseidon.SparseTable("stale", 2, rule="add", reduce="sum", staleness=2), True),
        (poseidon.SparseTable("async", 2, rule="add", reduce="sum", staleness=None), True),
    ]


def train_step(tables, step, args):
    draw = np.random.default_rng([poseidon.rank(), step])
    futures = []
    for table, is_count in tables:
        ids = draw.integers(0, LARGE_IDS if args.large else IDS, LARGE_IDS // 10 if args.large else 200)
        if is_count:
            gradients = np.ones((ids.size, table.width), np.float32)
        else:
            gradients = (draw.standard_normal((ids.size, table.width)) + table.lookup(ids).wait()).astype(table.dtype)
        futures.append(table.push(ids, gradients))
    for future in futures:
        future.wait()


def wait_at(gate):
    say("holding")
    deadline = time.monotonic() + 120
    while not gate.exists():
        assert time.monotonic() < deadline, f"{gate}: nobody opened the gate"
        time.sleep(0.005)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--gate", type=pathlib.Path)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--going", action="store_true")
    args = parser.parse_args()
    poseidon.init()
    tables = tables_of(args)
    for step in range(tables[0][0].step, args.steps):
        train_step(tables, step, args)
        say(f"step {step}")
    poseidon.barrier()
    digest = hashlib.sha256()
    for table, _ in tables:
        digest.update(table.lookup(np.arange(LARGE_IDS if args.large else IDS)).wait().tobytes())
    say(f"values {digest.hexdigest()[:40]}")
    if args.gate is not None and poseidon.rank() == 0:
        wait_at(args.gate)
    poseidon.close()


main()
