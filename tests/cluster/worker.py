# SPDX-License-Identifier: Apache-2.0
"""A worker that trains nothing, in whatever way a test wants it: gradients are a function of rank,
step and table, so that two jobs of the same shape must end with the same bits.

It prints "started", "joined RANK INCARNATION", "step N" after each step, "closed" at the end, or
"error NAME: TEXT" when a call fails, and then exits with 1. --die kills it (signal 9, no clean-up)
at a named moment of its first life; --hold makes rank 0 wait for a file before a step, and so
everybody with it."""

import argparse
import math
import os
import pathlib
import signal
import sys
import time

import psdlib

PATTERN = 8  # gradients repeat after so many elements


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--elements", type=int, default=1000)
    parser.add_argument("--tables", type=int, default=2)
    parser.add_argument("--awkward", action="store_true",
                        help="gradients whose sum shows the order of every addition")
    parser.add_argument("--staleness", type=int, default=0)
    parser.add_argument("--save", help="directory for rank 0")
    parser.add_argument("--die", default="", help="RANK:MOMENT or RANK:MOMENT:STEP")
    parser.add_argument("--hold", default="", help="STEP:FILE")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--op_timeout_ms", type=int, default=0)
    parser.add_argument("--open_timeout_ms", type=int, default=0)
    return parser.parse_args()


def say(text):
    print(text, flush=True)


class Worker:
    def __init__(self, args):
        self.args = args
        self.context = None
        self.rank = os.environ.get("PSD_RANK", "auto")  # a number once it has joined
        self.first_life = os.environ.get("PSD_RESTART_COUNT", "0") == "0"

    def moment(self, name, step=None):
        """One of: started, joined, opened, half, sent, done, closing, closed."""
        here = f"{self.rank}:{name}" + ("" if step is None else f":{step}")
        if self.args.die == here and self.first_life:
            os.kill(os.getpid(), signal.SIGKILL)

    def hold(self, step):
        at, _, path = self.args.hold.partition(":")
        if self.rank == 0 and at == str(step):
            say("holding")
            deadline = time.monotonic() + 120
            while not pathlib.Path(path).exists():
                assert time.monotonic() < deadline, f"{path}: nobody opened the gate"
                time.sleep(0.005)

    def gradient(self, table, step):
        if self.args.awkward:
            values = [math.ldexp(1 + (7 * self.rank + 3 * step + table + i) % 97 / 97,
                                 (5 * self.rank + step + i) % 21 - 10) for i in range(PATTERN)]
        else:
            values = [((self.rank + 1) * (step + 3) + 5 * table + i) % 11 / 16
                      for i in range(PATTERN)]
        return psdlib.array.array("f", values) * (self.args.elements // PATTERN + 1)

    def open_tables(self):
        return [
            self.context.table(
                f"table{t}", [self.args.elements], rule=psdlib.MOMENTUM,
                rule_args={"learning_rate": 0.1}, init=psdlib.UNIFORM, init_value=1.0, seed=t,
                staleness=self.args.staleness)
            for t in range(self.args.tables)
        ]

    def push(self, table, step, gradient, values):
        """What an earlier life gave already must not be given again."""
        if table.step() > step:
            return table.pull(step + 1, values)
        return table.push_pull(step, gradient, values)

    def train_step(self, tables, values, step):
        ops = []
        for t, table in enumerate(tables):
            ops.append(self.push(table, step, self.gradient(t, step), values[t]))
            if t == 0:
                self.moment("half", step)
        self.moment("sent", step)
        for op in ops:
            op.wait()
        self.moment("done", step)
        self.context.report(step, "loss", 1.0 / (step + 1))
        say(f"step {step}")

    def run(self):
        say("started")
        self.moment("started")
        self.context = psdlib.Context(open_timeout_ms=self.args.open_timeout_ms,
                                      op_timeout_ms=self.args.op_timeout_ms)
        self.rank = self.context.rank
        say(f"joined {self.rank} {self.context.incarnation}")
        self.moment("joined")
        tables = self.open_tables()
        values = [psdlib.floats(self.args.elements + PATTERN) for _ in tables]
        self.moment("opened")
        for step in range(min(table.step() for table in tables), self.args.steps):
            self.hold(step)
            self.train_step(tables, values, step)
        if self.args.save and self.rank == 0:
            if self.args.staleness:
                self.context.barrier()
            self.context.save(self.args.save, self.args.steps)
        self.moment("closing")
        self.context.close()
        say("closed")
        self.moment("closed")


def main():
    args = parse()
    if args.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker = Worker(args)
    try:
        worker.run()
    except psdlib.PsdError as error:
        say(f"error {error}")
        if worker.context is not None and error.name != "PSD_ERR_CLOSED":
            worker.context.abandon()
        sys.exit(1)


main()
