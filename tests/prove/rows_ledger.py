# SPDX-License-Identifier: Apache-2.0
"""The ledger workload (ledger.py) with rows of sparse tables: what must be in them is known, and looked at after every step.

Row 64 w + s is slot s of worker w, row 1024 the hot one for all; behind them are rows of noise, of which each worker pushes some
in a step. "sum rows": servers keep nothing, and what all pushed comes back. "rows": they keep the rows, with the rule add; those
of the last table are trained (adagrad) and have noise alone. What it prints is what ledger.py prints."""

import argparse
import hashlib
import os
import pathlib
import sys
import time

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import poseidon  # noqa: E402

from tape import Tape  # noqa: E402

SLOTS = 64
HOT = 1024
NOISE = 2048  # the first row
PHASES = 4
DIGEST_EVERY = 64
ADD_EVERY = 8  # steps, between two additions to the global step
SHAPES = {"small": [(1, 50), (3, 100)], "wide": [(16, 4000), (4, 9000)]}  # width, rows of noise that a worker pushes
WRONG = 9  # exit code


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("sum rows", "rows"), required=True)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--tapes", type=pathlib.Path, required=True, help="directory")
    parser.add_argument("--steps", type=int, default=0, help="0: until the tape says so")
    parser.add_argument("--pace", type=float, default=0, help="steps a second at most; 0: as many as there can be")
    parser.add_argument("--meet", action="store_true", help="a barrier every 32 steps")
    return parser.parse_args()


def weight(rank, step):
    return 1 + (rank + step) % 3


def numbers(values, width):
    """Rows that are one number each."""
    return numpy.repeat(numpy.asarray(values, numpy.float32)[:, None], width, 1)


class Ledger:
    """One table, and what must be in it."""

    def __init__(self, args, number, width, count):
        self.is_sum, self.width = args.mode == "sum rows", width
        self.is_weights = not self.is_sum and number == len(SHAPES[args.shape]) - 1
        kind = {"use": "sum"} if self.is_sum else \
            {"rule": "adagrad", "learning_rate": 0.1} if self.is_weights else {"rule": "add"}
        self.table = poseidon.SparseTable(f"ledger{number}", width, reduce="sum", **kind)
        self.noise = []
        for phase in range(PHASES):
            draw = numpy.random.default_rng([number, phase, poseidon.rank()])
            ids = NOISE + draw.choice(2 * count, count, replace=False)
            self.noise.append((ids, (draw.standard_normal((count, width)) * 2.0 ** draw.integers(-12, 12, (count, width)))
                               .astype(numpy.float32)))
        self.hot = 0
        self.digest = hashlib.sha256()

    def start(self, step):
        rank, (ids, rows) = poseidon.rank(), self.noise[step % PHASES]
        if not self.is_weights:
            ids = numpy.concatenate(([rank * SLOTS + step % SLOTS, HOT], ids))
            rows = numpy.concatenate((numbers([1, weight(rank, step)], self.width), rows))
        self.looked = ids
        return self.table.push(ids, rows) if self.is_sum else self.table.push_lookup(ids, rows, ids)

    def wrong(self, step, seen):
        """Words for what is not as it must be; "" if all is."""
        ids, rows = seen if self.is_sum else (self.looked, seen)
        size = poseidon.size()
        given = sum(weight(rank, step) for rank in range(size))
        self.hot = given if self.is_sum else self.hot + given
        self.digest.update(ids.tobytes() + rows.tobytes())
        if self.is_weights:
            return ""
        slots = range(size) if self.is_sum else [poseidon.rank()]
        must = {rank * SLOTS + step % SLOTS: 1 if self.is_sum else step // SLOTS + 1 for rank in slots}
        must[HOT] = self.hot
        ledger = ids < NOISE
        found = dict(zip(ids[ledger].tolist(), rows[ledger].tolist()))
        if len(found) == ledger.sum() and found == {at: [number] * self.width for at, number in must.items()}:
            return ""
        return f"step {step}: {found} and must be {must}"


class Worker:
    def __init__(self, args):
        self.args = args
        poseidon.init()
        self.tape = Tape(args.tapes / f"{poseidon.rank()}.tape")
        self.ledgers = [Ledger(args, number, *shape) for number, shape in enumerate(SHAPES[args.shape])]
        self.adds = 0
        print("ready", flush=True)

    def step(self, step):
        begin = time.monotonic()
        seen = [future.wait() for future in [ledger.start(step) for ledger in self.ledgers]]
        self.tape.add_step(begin, time.monotonic(), len(self.ledgers))
        for number, (ledger, rows) in enumerate(zip(self.ledgers, seen)):
            wrong = ledger.wrong(step, rows)
            if wrong:
                print(f"LEDGER worker {poseidon.rank()} table {number} {wrong}"[:2000], flush=True)
                os._exit(WRONG)
        if step % DIGEST_EVERY == DIGEST_EVERY - 1:
            self.tell(step + 1)

    def tell(self, step):
        """What all have seen alike: of kept rows, those that are looked up now."""
        chain = hashlib.sha256()
        for ledger in self.ledgers:
            if ledger.is_sum:
                chain.update(ledger.digest.digest())
            else:
                chain.update(ledger.table.lookup(numpy.arange(NOISE + 2 * len(ledger.noise[0][0]))).wait().tobytes())
        print(f"digest {step} {chain.hexdigest()}", flush=True)

    def between(self, step):
        """What the master, and server 0, are for."""
        if self.args.meet and step % 32 == 31:
            poseidon.barrier()
        if self.args.mode == "rows" and step % ADD_EVERY == ADD_EVERY - 1:
            poseidon.global_step(1)
            self.adds += 1
            self.tape.set("global_adds", self.adds)

    def finish(self):
        """All have given everything: what is there now must be all of it."""
        poseidon.barrier()
        if self.args.mode == "rows":
            print(f"final steps {poseidon.global_step(0)}", flush=True)
        for number, ledger in enumerate(self.ledgers):
            if not ledger.is_sum and not ledger.is_weights:
                values = ledger.table.lookup(numpy.arange(HOT + 1)).wait()
                print(f"final {number} 0 {' '.join(f'{value:g}' for value in values[:, 0])}", flush=True)
        poseidon.barrier()
        poseidon.close()
        print("closed", flush=True)

    def run(self):
        step, due = 0, time.monotonic()
        while step < (self.args.steps or self.tape.get("stop_at")):
            self.step(step)
            self.between(step)
            step += 1
            if self.args.pace:
                due = max(due + 1 / self.args.pace, time.monotonic() - 0.1)
                time.sleep(max(0.0, due - time.monotonic()))
        self.finish()


def main():
    try:
        Worker(parse()).run()
    except poseidon.Error as error:
        print(f"error {error}", flush=True)
        sys.exit(1)


main()
