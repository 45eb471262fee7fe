#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the witness of plain scripts costs in a step.

    psd_run --workers 2 -- python bench/witness_cost.py [width] [batch]

A plain script: it trains a perceptron, in blocks of steps with the witness, without it, and with it and a watch on its
parts. Worker 0 prints the medians of a step with it and without, by the clock and by the processor time of the thread that
trains: the difference is what it costs in the exchange, its transfer and who is woken for it included. What it does while
batches are read cannot be left out: that is timed in the third kind of blocks, and added. So are the parts that are computed
in Python, by processor time of one thread; the watch itself takes a microsecond or more of each."""

import collections
import functools
import os
import statistics
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, BATCH = int((sys.argv + ["256"])[1]), int((sys.argv + ["", "64"])[2])
BLOCK, BLOCKS = 20, 63  # steps of a block; blocks, the first of which warm up
WARM_UP = 6
OFF, ON, WATCHED = 0, 1, 2  # kinds of blocks

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(128, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(BATCH * 100, 128), torch.randint(0, 10, (BATCH * 100,)))
loader = DataLoader(data, BATCH, shuffle=True)

spent = collections.Counter()  # by part, in this step
running = []  # parts, the innermost last
watching = False


def time_it(owner, name, counts=True):
    """Replaces a method by one that is timed. Not counts: it is inside of another part, and no part of it."""
    own = getattr(owner, name)
    part = f"{owner.__name__}.{name}"

    @functools.wraps(own)
    def timed(*args, **kwargs):
        if not watching:
            return own(*args, **kwargs)
        running.append(part)
        begin = time.thread_time_ns()
        try:
            return own(*args, **kwargs)
        finally:
            took = time.thread_time_ns() - begin
            running.pop()
            spent[part] += took if counts else 0
            if running:
                spent[running[-1]] -= took

    setattr(owner, name, timed)


def watch_parts():
    """Those of the hook, once it has joined the job."""
    from _poseidon_auto.common import witness
    from _poseidon_auto.torch import checks, seen

    for name in ("begin", "leave", "end"):
        time_it(checks.Checks, name)
    time_it(checks.poseidon.Table, "transfer", counts=False)  # the table's: in the difference
    time_it(checks.poseidon.Future, "result", counts=False)
    time_it(seen.Seen, "gave")
    time_it(witness.Reading, "drew")


def companions():
    """What travels with the gradients."""
    from poseidon.torch.engine import engine_of

    return engine_of(next(model.parameters())).companions


def batches():
    while True:
        yield from loader


def train(points, classes):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(points), classes).backward()
    optimizer.step()


if "_poseidon_auto" not in sys.modules:
    sys.exit("run it by psd_run with two workers or more: there is no witness here")
clock, processor, parts = ([], [], []), ([], [], []), collections.defaultdict(list)  # by the kind of block
source = batches()
train(*next(source))
everything = companions()
witness_alone = list(everything)
watch_parts()
for block in range(BLOCKS):
    kind = block % 3
    everything[:] = [] if kind == OFF else witness_alone
    watching = kind == WATCHED
    for step in range(BLOCK):
        spent.clear()
        begin = time.perf_counter_ns(), time.thread_time_ns()
        train(*next(source))
        now = time.perf_counter_ns(), time.thread_time_ns()
        if block >= WARM_UP and step > 0:
            clock[kind].append(now[0] - begin[0])
            processor[kind].append(now[1] - begin[1])
            for part, took in spent.items():
                parts[part].append(took)
watching = False
everything[:] = witness_alone


def us(samples):
    return statistics.median(samples) / 1000


if os.environ["PSD_RANK"] == "0":
    each = {part: us(took) for part, took in parts.items()}
    reading = sum(took for part, took in each.items() if part.startswith(("Seen", "Reading")))
    for name, (off, on, _) in (("clock", clock), ("processor", processor)):
        cost, step = us(on) - us(off) + reading, us(on)
        print(f"{name:9}: a step {step:.0f} us, of which the witness {cost:.1f} us ({100 * cost / step:.2f} %): "
              f"{us(on) - us(off):.1f} us in the exchange, {reading:.1f} us where batches are read")
    print("parts in Python, processor time:")
    for part, took in sorted(each.items()):
        if took > 0:
            print(f"  {part:16} {took:6.1f} us")
