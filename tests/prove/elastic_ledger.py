# SPDX-License-Identifier: Apache-2.0
"""A worker of a job whose workers come and go, which keeps a ledger of what it has given.

Every chunk has SLOTS slots for each rank and a hot slot for all. The push of step s by rank r adds 1 to slot s % SLOTS of r,
and a small whole number to the hot slot, so sums are exact. Before each push and after each answer a line goes into the
file RANK.ledger, which outlives a kill.

With rounds ("bsp") each worker also looks after every step: what the step added must be that of the workers that psd_members
tells of. The worker of rank 0 is the last to leave, and then looks at all that is there: what was answered is there once, what was
not is there once or not at all. It prints "WRONG ..." for what is not as it must be, and "well ..." at the end.

SIGTERM: leave before the next step. The file "stop" in the directory: rank 0 says at which step all stop."""

import argparse
import os
import pathlib
import signal
import sys
import time

import psdlib

CHUNK = 65536
SLOTS = 128
RANKS = 16
HOT = RANKS * SLOTS
USED = HOT + 1
STALENESS = {"bsp": 0, "stale": 2, "async": psdlib.UNBOUNDED}
AHEAD = 20  # steps between rank 0's word and the end: more than workers are apart
WRONG = 9


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=STALENESS, required=True)
    parser.add_argument("--directory", type=pathlib.Path, required=True)
    parser.add_argument("--chunks", type=int, default=2)
    return parser.parse_args()


def weight(rank, step):
    return 1 + (rank + step) % 3


def wrong(text):
    print(f"WRONG {text}", flush=True)
    os._exit(WRONG)


class Book:
    """What a rank tried and what was answered: step by step, in a file."""

    def __init__(self, directory, rank):
        self.file = os.open(directory / f"{rank}.ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, word, step):
        os.write(self.file, f"{word} {step}\n".encode())


def read_books(directory):
    """Rank by rank: the steps that were answered, and those that were tried and not answered."""
    books = {}
    for path in directory.glob("*.ledger"):
        lines = [line.split() for line in path.read_text().splitlines()]
        done = {int(step) for word, step in lines if word == "done"}
        books[int(path.stem)] = done, {int(step) for word, step in lines if word == "try"} - done
    return books


class Worker:
    def __init__(self, args):
        self.args = args
        self.leaves = False
        signal.signal(signal.SIGTERM, self.note)
        self.context = psdlib.Context(op_timeout_ms=60_000)
        self.rank = self.context.rank
        self.book = Book(args.directory, self.rank)
        self.count = (args.chunks - 1) * CHUNK + USED
        self.table = self.context.table("ledger", [self.count], rule=psdlib.ADD, reduce=psdlib.REDUCE_SUM,
                                        staleness=STALENESS[args.mode])
        self.values, self.before = psdlib.floats(self.count), psdlib.floats(self.count)
        self.gradient = psdlib.floats(self.count)
        self.offsets = range(0, self.count, CHUNK)
        self.members = None  # of the step before

    def note(self, number, frame):
        self.leaves = True

    def is_over(self, step):
        file = self.args.directory / "stop_at"
        if self.rank == 0 and not file.exists() and (self.args.directory / "stop").exists():
            (self.args.directory / "part").write_text(str(step + AHEAD))
            (self.args.directory / "part").rename(file)
        return file.exists() and (self.args.mode == "async" or step >= int(file.read_text()))

    def push(self, step):
        for first in self.offsets:
            self.gradient[first + self.rank * SLOTS + step % SLOTS] = 1
            self.gradient[first + HOT] = weight(self.rank, step)
        self.book.add("try", step)
        self.table.push_pull(step, self.gradient, self.values).wait()
        self.book.add("done", step)
        for first in self.offsets:
            self.gradient[first + self.rank * SLOTS + step % SLOTS] = 0

    def check(self, step):
        """What the step before added, now that it is known who counts in this one."""
        members, version = self.context.members(step)
        if self.members is not None and self.args.mode == "bsp":
            past, past_version = self.members
            if (members == past) != (version == past_version):
                wrong(f"rank {self.rank} step {step}: {past} version {past_version}, then {members} version {version}")
            self.check_added(step - 1, past, members)
        self.members = members, version
        self.before[:] = self.values

    def check_added(self, step, past, now):
        for first in self.offsets:
            added = {}
            for rank in range(RANKS):
                at = first + rank * SLOTS + step % SLOTS
                if self.values[at] != self.before[at]:
                    added[rank] = self.values[at] - self.before[at]
            came = {rank for rank in set(added) - past if rank in now and step < 2}  # with the others, at the very beginning
            if set(added.values()) - {1} or not past & now <= set(added) <= past | came:
                wrong(f"rank {self.rank} step {step} chunk {first // CHUNK}: {added}; the step had {past}, the next {now}")
            hot = sum(weight(rank, step) for rank in added)
            if self.values[first + HOT] - self.before[first + HOT] != hot:
                wrong(f"rank {self.rank} step {step}: the hot slot grew by "
                      f"{self.values[first + HOT] - self.before[first + HOT]:g}, not by {hot}")

    def train(self):
        step = self.table.step()
        if self.is_over(step):
            return  # nobody makes values of that step
        self.table.pull(step, self.values).wait()
        self.before[:] = self.values
        while True:
            self.check(step)
            if self.leaves and self.rank != 0:
                self.context.leave()
                print(f"left before step {step}", flush=True)
                return
            if self.is_over(step):
                return
            self.push(step)
            step += 1

    def wait_for_the_others(self):
        deadline = time.monotonic() + 60
        while len(self.context.members(psdlib.NOW)[0]) > 1:
            if time.monotonic() > deadline:
                wrong(f"the others have not left: {self.context.members(psdlib.NOW)}")
            time.sleep(0.01)

    def audit(self):
        """Everything that is there, against everybody's book."""
        self.wait_for_the_others()
        self.table.pull(self.table.step(), self.values).wait()
        books = read_books(self.args.directory)
        for first in self.offsets:
            hot = 0
            for rank, (done, tried) in books.items():
                for slot in range(SLOTS):
                    there = self.values[first + rank * SLOTS + slot]
                    sure = [step for step in done if step % SLOTS == slot]
                    maybe = [step for step in tried if step % SLOTS == slot]
                    if not len(sure) <= there <= len(sure) + len(maybe):
                        wrong(f"chunk {first // CHUNK} rank {rank} slot {slot}: {there:g}; answered {len(sure)}, "
                              f"tried {len(sure) + len(maybe)}")
                    hot += sum(weight(rank, step) for step in sure)
                    hot += weight(rank, maybe[0]) if there > len(sure) else 0
            if self.values[first + HOT] != hot:
                wrong(f"chunk {first // CHUNK}: the hot slot is {self.values[first + HOT]:g} and must be {hot}")
        total = sum(len(done) for done, _ in books.values())
        print(f"well {len(books)} ranks gave {total} gradients, {sum(len(tried) for _, tried in books.values())} unanswered",
              flush=True)

    def run(self):
        self.train()
        if self.rank == 0:
            self.audit()
        self.context.close()


def main():
    try:
        Worker(parse()).run()
    except psdlib.PsdError as error:
        print(f"error {error}", flush=True)
        sys.exit(1)


main()
