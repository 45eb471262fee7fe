# SPDX-License-Identifier: Apache-2.0
"""The ledger workload: a worker that knows exactly what must be in its tables, and looks after every step.

Every chunk has SLOTS slots for each worker and a hot slot for all. Push number s of worker w adds 1 to its slot s % SLOTS
and a small whole number to the hot slot, so sums are exact, and what was lost or counted twice is seen by name: worker,
slot, chunk. Tables with rounds carry noise behind the ledger, whose sum shows the order of every addition: "digest STEP
HASH" chains all that was seen, and must be that of a run without deaths.

It prints "ready" when its tables are open, "LEDGER ..." for each thing that is wrong, and "final ..." at the end."""

import argparse
import hashlib
import os
import pathlib
import sys
import time

import numpy

import psdlib
from tape import Tape

CHUNK = 65536
SLOTS = 64
HOT = 1024
LEDGER = 2048  # elements of every chunk
PHASES = 4
DIGEST_EVERY = 64
ADD_EVERY = 8  # steps, between two additions to the global step
SHAPES = {"small": [2500] * 4, "wide": [150_000, 70_000]}
STALENESS = {"sum": 0, "bsp": 0, "stale": 2, "async": psdlib.UNBOUNDED}
WRONG = 9  # exit code


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=STALENESS, required=True)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--tapes", type=pathlib.Path, required=True, help="directory")
    parser.add_argument("--steps", type=int, default=0, help="0: until the tape says so")
    parser.add_argument("--pace", type=float, default=0, help="steps a second at most; 0: as many as there can be")
    parser.add_argument("--meet", action="store_true", help="a barrier every 32 steps")
    return parser.parse_args()


def weight(rank, step):
    return 1 + (rank + step) % 3


def whole(array):
    return memoryview(array).cast("B")


class Ledger:
    """One table, and what must be in it."""

    def __init__(self, context, args, number, elements):
        self.rank, self.size = context.rank, context.size
        self.is_sum = args.mode == "sum"
        self.in_step = STALENESS[args.mode] == 0
        self.is_weights = args.mode == "bsp" and number == len(SHAPES[args.shape]) - 1
        self.has_noise = self.in_step
        self.chunks = range(0, elements, CHUNK)
        options = {"use": psdlib.SUM} if self.is_sum else {"staleness": STALENESS[args.mode]}
        rule = {"reduce": psdlib.REDUCE_SUM}
        if self.is_weights:  # no ledger, but two numbers of state for each
            rule = {"rule": psdlib.ADAM, "rule_args": {"learning_rate": 0.01}}
        elif not self.is_sum:
            rule["rule"] = psdlib.ADD
        self.table = context.table(f"ledger{number}", [elements], **rule, **options)
        self.values = numpy.zeros(elements, numpy.float32)
        self.bases = [numpy.zeros(elements, numpy.float32) for _ in range(PHASES)]
        self.gradient = numpy.zeros(elements, numpy.float32)
        self.expected = numpy.zeros(LEDGER, numpy.float32)
        if self.has_noise:
            self.make_noise(number)
        self.digest = hashlib.sha256()

    def make_noise(self, number):
        for phase, base in enumerate(self.bases):
            random = numpy.random.default_rng([number, phase, self.rank])
            for first in self.chunks:
                part = base[first + LEDGER:first + CHUNK]
                part[:] = random.standard_normal(len(part)) * 2.0 ** random.integers(-12, 12, len(part))

    def start(self, step):
        numpy.copyto(self.gradient, self.bases[step % PHASES])
        for first in self.chunks:
            self.gradient[first + self.rank * SLOTS + step % SLOTS] = 1
            self.gradient[first + HOT] = weight(self.rank, step)
        into = self.gradient if self.is_sum else self.values  # a sum is written over its gradient
        return self.table.push_pull(step, whole(self.gradient), whole(into))

    def note(self, step):
        """What the step must have done."""
        if self.is_sum:
            self.expected[:] = 0
        for rank in range(self.size) if self.in_step else [self.rank]:
            self.expected[rank * SLOTS + step % SLOTS] += 1
            self.expected[HOT] += weight(rank, step)

    def wrong(self, step):
        """Words for what is not as it must be; "" if all is."""
        seen = self.gradient if self.is_sum else self.values
        mine = slice(self.rank * SLOTS, (self.rank + 1) * SLOTS)
        known = slice(0, LEDGER) if self.in_step else mine
        for first in [] if self.is_weights else self.chunks:
            ledger = seen[first:first + LEDGER]
            if not numpy.array_equal(ledger[known], self.expected[known]):
                at = numpy.flatnonzero(ledger[known] != self.expected[known])[:4] + known.start
                return f"step {step} chunk {first // CHUNK}: " + ", ".join(
                    f"{name(slot)} is {ledger[slot]:g} and must be {self.expected[slot]:g}" for slot in at)
        if self.in_step:
            self.digest.update(whole(seen))
        return ""


def name(slot):
    return "the hot slot" if slot == HOT else f"slot {slot % SLOTS} of worker {slot // SLOTS}"


class Worker:
    def __init__(self, args):
        self.args = args
        self.context = psdlib.Context()
        self.tape = Tape(args.tapes / f"{self.context.rank}.tape")
        self.ledgers = [Ledger(self.context, args, number, elements)
                        for number, elements in enumerate(SHAPES[args.shape])]
        self.adds = 0
        print("ready", flush=True)

    def check(self, step):
        for number, ledger in enumerate(self.ledgers):
            ledger.note(step)
            wrong = ledger.wrong(step)
            if wrong:
                print(f"LEDGER worker {self.context.rank} table {number} {wrong}", flush=True)
                os._exit(WRONG)
        if step % DIGEST_EVERY == DIGEST_EVERY - 1 and self.ledgers[0].in_step:
            chain = hashlib.sha256(b"".join(ledger.digest.digest() for ledger in self.ledgers))
            print(f"digest {step + 1} {chain.hexdigest()}", flush=True)

    def step(self, step):
        begin = time.monotonic()
        for op in [ledger.start(step) for ledger in self.ledgers]:
            op.wait()
        self.tape.add_step(begin, time.monotonic(), len(self.ledgers))
        self.check(step)

    def between(self, step):
        """What the master, and server 0, are for."""
        if self.args.meet and step % 32 == 31:
            self.context.barrier()
        if self.args.mode != "sum" and step % ADD_EVERY == ADD_EVERY - 1:
            self.context.global_step(1)
            self.adds += 1
            self.tape.set("global_adds", self.adds)

    def is_over(self, step):
        return step >= (self.args.steps or self.tape.get("stop_at"))

    def finish(self):
        """All have given everything: what is there now must be all of it."""
        self.context.barrier()
        if self.args.mode != "sum":
            print(f"final steps {self.context.global_step(0)}", flush=True)
            for number, ledger in enumerate(self.ledgers):
                if ledger.is_weights:
                    continue
                ledger.table.pull(ledger.table.step(), whole(ledger.values)).wait()
                for first in ledger.chunks:
                    values = " ".join(f"{value:g}" for value in ledger.values[first:first + HOT + 1])
                    print(f"final {number} {first // CHUNK} {values}", flush=True)
        self.context.barrier()
        self.context.close()
        print("closed", flush=True)

    def run(self):
        step, due = 0, time.monotonic()
        while not self.is_over(step):
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
    except psdlib.PsdError as error:
        print(f"error {error}", flush=True)
        sys.exit(1)


main()
