# SPDX-License-Identifier: Apache-2.0
"""A worker with sparse tables of several kinds, whose rows at the end do not depend on who was killed meanwhile.

`--hold STEP:FILE` makes rank 0 wait for that file before the step, or at the end (closing:FILE), so that the job is still
there when the last server is killed. `--large` keeps one table, large enough that rounds close while a new copy of it is
made. `--hot N` lets memory hold N rows of each table, and the servers' disks the others. `--die RANK:STEP` keeps rows that go, and kills that rank. `--ledger` keeps those alone that count, so that workers may come and go. Prints a line per step, how many rows this
worker has pushed, how many all have by what the tables say, and a SHA-256 of all rows of all tables: a push that is lost,
or counts twice, changes it."""

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

IDS = 3000
LARGE_IDS = 150_000


def say(text):
    print(text, flush=True)


def tables_of(args):
    """By name; and whose gradients are small integers, which have the same sum in any order."""
    hot = dict(capacity_rows=args.hot, full="spill") if args.hot else {}
    if args.large:
        return [(poseidon.SparseTable("large", 16, rule="adagrad", learning_rate=0.1, init="uniform", init_value=1, **hot), False)]
    if args.ledger:
        return [(poseidon.SparseTable(f"ledger{number}", 2, rule="add", reduce="sum", staleness=staleness, **hot), True)
                for number, staleness in enumerate((0, 2))]
    rows = dict(init="uniform", init_value=1, seed=3, **hot)
    if args.die:  # a replacement knows the steps of tables with rounds
        return [(poseidon.SparseTable("idle", 8, rule="adagrad", learning_rate=0.1, idle_steps=7, sweep_every=2, **rows), False),
                (poseidon.SparseTable("admitted", 3, rule="adam", admit_after=3, **rows), False)]
    return [
        (poseidon.SparseTable("adagrad", 8, rule="adagrad", learning_rate=0.1, **rows), False),
        (poseidon.SparseTable("adam", 3, "float16", rule="adam", learning_rate=0.01, admit_after=3, **rows), False),
        (poseidon.SparseTable("stale", 2, rule="add", reduce="sum", staleness=2, **hot), True),
        (poseidon.SparseTable("async", 2, rule="add", reduce="sum", staleness=None, **hot), True),
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
    if args.die == f"{poseidon.rank()}:{step}" and poseidon.context().incarnation == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for future in futures:
        future.wait()


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
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--hold", action="append", default=[])
    parser.add_argument("--leave", default="", help="RANK:STEP: leaves before that step")
    parser.add_argument("--ledger", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--hot", type=int, default=0, help="rows of each table that memory holds; 0: all")
    parser.add_argument("--die", default="", help="RANK:STEP: is killed in its first life, in the middle of that step")
    args = parser.parse_args()
    poseidon.init()
    tables = tables_of(args)
    first = tables[0][0].step
    say(f"joined {poseidon.rank()} at {first}")
    for step in range(first, args.steps):
        if args.leave == f"{poseidon.rank()}:{step}":
            say(f"pushed {step - first} times")
            poseidon.close()
            return
        hold(args, step)
        train_step(tables, step, args)
        say(f"step {step}")
    say(f"pushed {args.steps - first} times")
    poseidon.barrier()
    digest = hashlib.sha256()
    for table, is_count in tables:
        rows = table.lookup(np.arange(LARGE_IDS if args.large else IDS)).wait()
        digest.update(rows.tobytes())
        if is_count:
            say(f"{table.name} has {rows[:, 0].sum(dtype=np.float64):.0f}")
    say(f"values {digest.hexdigest()[:40]}")
    hold(args, "closing")
    poseidon.close()


main()
