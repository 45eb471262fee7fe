#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the witness of plain scripts costs in a step.

    psd_run --workers 2 -- python bench/witness_cost.py [width] [batch] [epochs] [device]

epochs 0: what can be counted, and nothing that depends on what else runs on the machine.

A plain script: it trains a perceptron, in short epochs with the witness and without it in turn: nothing of it is left in the
latter, neither where batches are read nor where gradients are exchanged, but for a look at the rounds before a step. Worker 0 prints how long a step takes in both, by the
clock and by the processor time of the thread that trains, and the difference: its median, and the range in which the medians
of ten parts of the run lie but for the lowest and the highest. A third line is of whole epochs, divided by their steps: with
what begins and ends a reading, and with what is done for many steps at once, which the median of a step does not have. In a few
epochs more the parts of it that are computed in Python are timed one by one; the watch itself takes a microsecond of each. In
others it is counted what Python does in a step: each function that is entered is one more to be fetched into caches that the step
before has left cold.

bench/witness_jobs.py runs many such jobs on a machine that has nothing else to do."""

import collections
import functools
import os
import statistics
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, BATCH, EPOCHS = (int(word) for word in (sys.argv[1:4] + ["256", "64", "400"][len(sys.argv) - 1:]))
DEVICE = sys.argv[4] if len(sys.argv) > 4 else "cpu"
STEPS = 25  # of an epoch
WARM_UP, WATCHED, COUNTED = 10, 10, 4  # epochs
PARTS = 10

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(128, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if "_poseidon_auto" not in sys.modules:
    sys.exit("run it by psd_run with two workers or more: there is no witness here")
samples = STEPS * BATCH * int(os.environ["PSD_NUM_WORKERS"])
loader = DataLoader(TensorDataset(torch.randn(samples, 128), torch.randint(0, 10, (samples,))), BATCH, shuffle=True)


class Switch:
    """Takes the witness out and puts it back, between two epochs."""

    def __init__(self):
        from _poseidon_auto.torch import seen
        from poseidon.torch.engine import engine_of

        self._companions = engine_of(next(model.parameters())).companions
        self._kept = list(self._companions)
        self._seen, self._drawn = seen.Seen, seen.Seen.drawn

    def turn(self, on):
        """From now on. Nobody looks at what is read where there is no reading of the witness."""
        self._companions[:] = self._kept if on else []
        self._seen.drawn = self._drawn if on else lambda _seen, _loader, batches: batches


class Watch:
    """Times parts of it, by the processor time of the thread."""

    def __init__(self):
        self.steps = collections.defaultdict(list)  # by part
        self._spent = collections.Counter()  # in this step
        self._running = []  # parts, the innermost last

    def part(self, owner, name):
        """From now on."""
        own = getattr(owner, name)
        part = f"{owner.__name__}.{name}"

        @functools.wraps(own)
        def timed(*args, **kwargs):
            self._running.append(part)
            begin = time.thread_time_ns()
            try:
                return own(*args, **kwargs)
            finally:
                took = time.thread_time_ns() - begin
                self._running.pop()
                self._spent[part] += took
                if self._running:
                    self._spent[self._running[-1]] -= took

        setattr(owner, name, timed)

    def end_step(self):
        """All of it."""
        for part, took in self._spent.items():
            self.steps[part].append(took)
        self._spent.clear()


class Count:
    """What Python does in a step."""

    WHAT = ("functions of Python entered", "functions of C called", "instructions of Python")

    def __init__(self):
        self.steps = []
        self.instructions = collections.Counter()  # of all steps, by function
        self._found = [0] * len(self.WHAT)

    def step(self, reading):
        """One, counted."""
        self._found = [0] * len(self.WHAT)
        sys.settrace(self._trace)
        sys.setprofile(self._profile)
        try:
            train(*next(reading))
        finally:
            sys.setprofile(None)
            sys.settrace(None)
        self.steps.append(self._found)

    def _profile(self, _frame, event, _argument):
        if event in ("call", "c_call"):
            self._found[event == "c_call"] += 1

    def _trace(self, frame, event, _argument):
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self._found[2] += 1
            self.instructions[frame.f_code.co_qualname] += 1
        return self._trace


def train(points, classes):
    if DEVICE != "cpu":
        points, classes = points.to(DEVICE), classes.to(DEVICE)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(points), classes).backward()
    optimizer.step()


def epoch(after_step):
    """By clock and by processor, of all steps but those in which readings begin and end; and by clock of all of it, as if it
    were one step. A batch stays until the next one is there, as it does in `for points, classes in loader`."""
    clock, processor = [], []
    first = time.perf_counter_ns()
    reading = iter(loader)
    for step in range(STEPS):
        begin = time.perf_counter_ns(), time.thread_time_ns()
        points, classes = next(reading)
        train(points, classes)
        now = time.perf_counter_ns(), time.thread_time_ns()
        if 0 < step < STEPS - 1:
            clock.append(now[0] - begin[0])
            processor.append(now[1] - begin[1])
        after_step()
    assert next(reading, None) is None
    return clock, processor, [(time.perf_counter_ns() - first) / STEPS]


def counted_epoch(count):
    """The same steps."""
    reading, other = iter(loader), Count()
    for step in range(STEPS):
        (count if 0 < step < STEPS - 1 else other).step(reading)
    assert next(reading, None) is None


def cost(on, off):
    """Of a step in epochs with it and without."""
    return statistics.median(sum(on, [])) - statistics.median(sum(off, []))


def tell(name, on, off):
    size = max(1, len(on) // PARTS)
    parts = sorted(cost(on[at:at + size], off[at:at + size]) for at in range(0, len(on), size))
    step, found = statistics.median(sum(on, [])), cost(on, off)
    print(f"{name:12}: a step {step / 1000:.0f} us, of which the witness {found / 1000:.1f} us "
          f"({parts[1] / 1000:.1f} to {parts[-2] / 1000:.1f}), {100 * found / step:.2f} %")


epoch(lambda: None)
switch, watch = Switch(), Watch()
clocks, processors, wholes = ([], []), ([], []), ([], [])  # by whether it is on
for number in range(WARM_UP + EPOCHS):
    is_on = number % 2
    switch.turn(is_on)
    found = epoch(lambda: None)
    if number >= WARM_UP:
        clocks[is_on].append(found[0])
        processors[is_on].append(found[1])
        wholes[is_on].append(found[2])

counts = Count(), Count()  # by whether it is on
for number in range(COUNTED):
    switch.turn(number % 2)
    counted_epoch(counts[number % 2])

switch.turn(True)
from _poseidon_auto.common import witness  # noqa: E402
from _poseidon_auto.torch import checks  # noqa: E402

for name in ("begin", "leave", "end"):
    watch.part(checks.Checks, name)
watch.part(witness.Reading, "gave_another")
for number in range(WATCHED if EPOCHS else 0):
    epoch(watch.end_step)

if os.environ["PSD_RANK"] == "0":
    if EPOCHS:
        tell("clock", clocks[True], clocks[False])
        tell("processor", processors[True], processors[False])
        tell("whole epochs", wholes[True], wholes[False])
        print("parts in Python, processor time, of which leave() is done while everybody waits for the gradients:")
    for part, took in sorted(watch.steps.items()):
        print(f"  {part:16} {statistics.median(took) / 1000:6.1f} us")
    for name, on, off in zip(Count.WHAT, zip(*counts[True].steps), zip(*counts[False].steps)):
        print(f"{name}: {statistics.median(on):.0f}, without the witness {statistics.median(off):.0f}")
    print("instructions of Python more with it, by function:")
    for name, more in (counts[True].instructions - counts[False].instructions).most_common():
        if round(more / len(counts[True].steps)) > 0:
            print(f"  {name:32} {more / len(counts[True].steps):6.0f}")
