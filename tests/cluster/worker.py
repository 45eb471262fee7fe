# SPDX-License-Identifier: Apache-2.0
"""A worker that trains nothing, in whatever way a test wants it: gradients are a function of rank,
step and table, so that two jobs of the same shape must end with the same bits.

It prints "started", "joined RANK INCARNATION", "step N" after each step, "values HASH" (of all that
came back in all steps), "closed" at the end, or "error NAME: TEXT" when a call fails, and then exits
with 1. --die kills it (signal 9, no clean-up) at a named moment of its first life; --hold makes rank 0
wait for a file before a step, and so everybody with it; --cut ends its connections to the servers
before a step, which then have to be made again."""

import argparse
import collections
import hashlib
import math
import os
import pathlib
import signal
import socket
import stat
import struct
import sys
import time

import psdlib

PATTERN = 8  # gradients repeat after so many elements
PERIOD = 16  # equal ones after so many steps: their sum stays exact

Kind = collections.namedtuple("Kind", "dtype rule use staleness", defaults=(psdlib.UPDATE, 0))

# One table of each kind. Where the order of the updates is left to chance, they add up exactly.
ZOO = [Kind(dtype, rule) for dtype in psdlib.ELEMENTS
       for rule in (psdlib.SGD, psdlib.MOMENTUM, psdlib.ADAM)]
ZOO += [Kind(dtype, psdlib.SGD, psdlib.SUM) for dtype in psdlib.ELEMENTS]
ZOO += [Kind(dtype, psdlib.ADD, psdlib.UPDATE, staleness)
        for dtype in psdlib.ELEMENTS for staleness in (2, psdlib.UNBOUNDED)]


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--elements", type=int, default=1000)
    parser.add_argument("--tables", type=int, default=2)
    parser.add_argument("--awkward", action="store_true",
                        help="gradients whose sum shows the order of every addition")
    parser.add_argument("--staleness", type=int, default=0)
    parser.add_argument("--rule", choices=("sgd", "momentum", "adam"), default="momentum")
    parser.add_argument("--zoo", action="store_true", help="tables of every kind instead")
    parser.add_argument("--sum", action="store_true", help="tables of sums, each result written over its gradient")
    parser.add_argument("--split", action="store_true", help="push, and when that is done, pull")
    parser.add_argument("--memory", choices=("ordinary", "region", "view"), default="ordinary",
                        help="gradients from psd_alloc; and values read in psd_view")
    parser.add_argument("--check", action="store_true", help="pull again what came, and compare")
    parser.add_argument("--equal", action="store_true",
                        help="all elements of a gradient are one number, all values a sum")
    parser.add_argument("--pull_first", action="store_true",
                        help="begin with the values, as a worker that trains does")
    parser.add_argument("--cut", type=int, default=-1, help="STEP")
    parser.add_argument("--save", help="directory for rank 0")
    parser.add_argument("--die", default="", help="RANK:MOMENT or RANK:MOMENT:STEP")
    parser.add_argument("--hold", action="append", default=[], help="STEP:FILE, closing:FILE, or pushedSTEP:FILE (--split)")
    parser.add_argument("--meet", action="store_true", help="a barrier before each step")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--leave_on_term", action="store_true", help="SIGTERM: leave before the next step")
    parser.add_argument("--unclosed", action="store_true", help="exit with 0 instead of closing")
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
        self.regions = []
        self.values = []
        self.seen = hashlib.sha256()
        self.asked_to_leave = False

    def moment(self, name, step=None):
        """One of: started, joined, opened, half, sent, done, closing, closed."""
        here = f"{self.rank}:{name}" + ("" if step is None else f":{step}")
        if self.args.die == here and self.first_life:
            os.kill(os.getpid(), signal.SIGKILL)

    def hold(self, step):
        path = dict(hold.split(":", 1) for hold in self.args.hold).get(str(step))
        if self.rank == 0 and path is not None:
            say("holding")
            deadline = time.monotonic() + 120
            while not pathlib.Path(path).exists():
                assert time.monotonic() < deadline, f"{path}: nobody opened the gate"
                time.sleep(0.005)

    def cut(self):
        """Ends the connections to servers on this host as the loss of a peer would."""
        for name in os.listdir("/proc/self/fd"):
            try:
                is_socket = stat.S_ISSOCK(os.fstat(int(name)).st_mode)
            except OSError:
                continue  # of the listing itself
            if is_socket:
                with socket.socket(fileno=os.dup(int(name))) as connection:
                    if connection.type == socket.SOCK_SEQPACKET:
                        connection.shutdown(socket.SHUT_RDWR)
                        say("cut")

    def kinds(self):
        if self.args.zoo:
            return ZOO
        if self.args.sum:
            return [Kind(psdlib.F32, psdlib.SGD, psdlib.SUM)] * self.args.tables
        rule = {"sgd": psdlib.SGD, "momentum": psdlib.MOMENTUM, "adam": psdlib.ADAM}[self.args.rule]
        rule = psdlib.ADD if self.args.equal else rule
        return [Kind(psdlib.F32, rule, psdlib.UPDATE, self.args.staleness)] * self.args.tables

    def gradient(self, table, step):
        """The bytes of a gradient, in memory that can be pushed from."""
        letter, size = psdlib.ELEMENTS[self.kinds()[table].dtype]
        values = [((self.rank + 1) * (step + 3) + 5 * table + i) % 11 / 16 for i in range(PATTERN)]
        if self.args.equal:
            values = [step % PERIOD + 1] * PATTERN
        elif self.args.awkward:
            values = [math.ldexp(1 + (7 * self.rank + 3 * step + table + i) % 97 / 97,
                                 (5 * self.rank + step + i) % 21 - 10) for i in range(PATTERN)]
        pattern = struct.pack(f"<{PATTERN}{letter}", *values)
        if self.args.memory == "ordinary":
            return bytearray(pattern * (self.args.elements // PATTERN + 1))
        memory = self.regions[table]
        piece = pattern * 1024  # so that it is half written now and then
        for at in range(0, len(memory), len(piece)):
            memory[at:at + len(piece)] = piece[:len(memory) - at]
        return memory

    def open_table(self, number, kind):
        options = {"dtype": kind.dtype, "rule": kind.rule, "use": kind.use,
                   "staleness": kind.staleness}
        if kind.use == psdlib.UPDATE and kind.rule != psdlib.ADD:
            options.update(rule_args={"learning_rate": 0.1}, init=psdlib.UNIFORM, init_value=1.0,
                           seed=number)
        return self.context.table(f"table{number}", [self.args.elements], **options)

    def open_tables(self):
        tables = [self.open_table(number, kind) for number, kind in enumerate(self.kinds())]
        sizes = [self.args.elements * psdlib.ELEMENTS[kind.dtype][1] for kind in self.kinds()]
        if self.args.memory == "ordinary":
            self.values = [bytearray(size) for size in sizes]
        else:
            self.regions = [self.context.alloc(size) for size in sizes]
        if self.args.memory == "region":
            self.values = [bytearray(size) for size in sizes]
        elif self.args.memory == "view":
            self.values = [table.view() for table in tables]
        return tables

    def push(self, number, table, step):
        """What an earlier life gave already must not be given again."""
        into = {"values": self.values[number]}
        if self.args.memory == "view":
            into = {"values": None, "flags": psdlib.VIEW}
        if table.step() > step:
            return table.pull(step + 1, **into)
        if self.args.split:
            return table.push(step, self.gradient(number, step))
        if self.args.sum and self.args.memory != "view":
            self.values[number] = self.gradient(number, step)
            return table.push_pull(step, self.values[number], self.values[number])
        return table.push_pull(step, self.gradient(number, step), **into)

    def check_pull(self, number, table, step):
        again = bytearray(len(self.values[number]))
        table.pull(step + 1, again).wait()
        assert again == self.values[number], f"table {number} step {step}: a pull says otherwise"

    def check_equal(self, number, step):
        """A gradient counts as a whole or not at all."""
        total = sum(at % PERIOD + 1 for at in range(step + 1))
        wanted = struct.pack("<f", total) * self.args.elements
        if self.values[number] != wanted:
            got = set(struct.unpack(f"<{self.args.elements}f", self.values[number]))
            raise AssertionError(f"table {number} step {step}: {total} expected, got {got}")

    def look_at_values(self, tables, step):
        for number, kind in enumerate(self.kinds()):
            if kind.staleness == 0:
                self.seen.update(self.values[number])
            if kind.staleness == 0 and self.args.check:
                self.check_pull(number, tables[number], step)
            if self.args.equal:
                self.check_equal(number, step)

    def train_step(self, tables, step):
        ops = []
        for number, table in enumerate(tables):
            ops.append(self.push(number, table, step))
            if number == 0:
                self.moment("half", step)
        self.moment("sent", step)
        for op in ops:
            op.wait()
        if self.args.split:
            self.hold(f"pushed{step}")
            for op in [table.pull(step + 1, self.values[number]) for number, table in enumerate(tables)]:
                op.wait()
        self.moment("done", step)
        self.look_at_values(tables, step)
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
        self.moment("opened")
        first = min(table.step() for table in tables)
        if self.args.pull_first:
            for number, table in enumerate(tables):
                table.pull(first, self.values[number]).wait()
        for step in range(first, self.args.steps):
            self.hold(step)
            if self.asked_to_leave:
                say(f"leaves before step {step}")
                break
            if self.args.meet:
                self.context.barrier()
            if self.args.cut == step:
                self.cut()
            self.train_step(tables, step)
        say(f"values {self.seen.hexdigest()[:40]}")
        if self.args.save and any(kind.staleness for kind in self.kinds()):
            self.context.barrier()
        if self.args.save and self.rank == 0:
            self.context.save(self.args.save, self.args.steps)
        self.hold("closing")
        self.moment("closing")
        if self.args.unclosed:
            os._exit(0)
        self.context.close()
        say("closed")
        self.moment("closed")


def main():
    args = parse()
    if args.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker = Worker(args)
    if args.leave_on_term:
        signal.signal(signal.SIGTERM, lambda number, frame: setattr(worker, "asked_to_leave", True))
    try:
        worker.run()
    except psdlib.PsdError as error:
        say(f"error {error}")
        if worker.context is not None and error.name != "PSD_ERR_CLOSED":
            worker.context.abandon()
        sys.exit(1)


main()
