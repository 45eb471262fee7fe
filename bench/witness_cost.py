#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the witness of plain scripts costs in a step, beside the exchange that it travels with.

    psd_run --workers 2 -- python bench/witness_cost.py [width] [batch]

A plain script: it trains a perceptron, and looks with a watch at the parts of the hook that are the witness's. Worker 0
prints the median of a step, of the witness in it, and of each part. Processor time of one thread: what other programs do
meanwhile counts nothing."""

import collections
import functools
import os
import statistics
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, BATCH, STEPS = int((sys.argv + ["256"])[1]), int((sys.argv + ["", "64"])[2]), 400

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(128, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(BATCH * 100, 128), torch.randint(0, 10, (BATCH * 100,)))
loader = DataLoader(data, BATCH, shuffle=True)

spent = collections.Counter()  # by part, in this step
running = []  # parts, the innermost last


def time_it(owner, name, counts=True):
    """Replaces a method by one that is timed. Not counts: it is inside of another part, and no part of it."""
    own = getattr(owner, name)

    @functools.wraps(own)
    def timed(*args, **kwargs):
        part = f"{owner.__name__}.{name}"
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

    time_it(checks.Checks, "begin")
    time_it(checks.Checks, "end")
    time_it(checks.poseidon.Table, "transfer", counts=False)  # one more that travels with the gradients
    time_it(checks.poseidon.Future, "result", counts=False)
    time_it(seen.Seen, "gave")
    time_it(witness.Reading, "drew")


if "_poseidon_auto" not in sys.modules:
    sys.exit("run it by psd_run with two workers or more: there is no witness here")
steps, parts = [], collections.defaultdict(list)
while len(steps) < STEPS:
    begin = time.thread_time_ns()
    for points, classes in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(points), classes).backward()
        optimizer.step()
        if not steps:
            watch_parts()
        now = time.thread_time_ns()
        steps.append(now - begin)
        for part, took in spent.items():
            parts[part].append(took)
        spent.clear()
        begin = now
if os.environ["PSD_RANK"] == "0":
    step = statistics.median(steps) / 1000
    each = {part: statistics.median(took) / 1000 for part, took in parts.items()}
    print(f"step {step:.0f} us of this thread, of which the witness {sum(each.values()):.1f} us "
          f"({100 * sum(each.values()) / step:.2f} %)")
    for part, took in sorted(each.items()):
        print(f"  {part:24} {took:6.1f} us")
