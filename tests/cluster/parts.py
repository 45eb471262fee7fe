# SPDX-License-Identifier: Apache-2.0
"""A worker whose weights are its own, as those of frameworks are: servers only add. Its numbers are integers, so a step
that is made twice or left out is seen."""

import pathlib
import struct
import sys
import threading

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import poseidon  # pylint: disable=wrong-import-position
from poseidon._context import CHECKPOINT_EPOCH  # pylint: disable=wrong-import-position

STEPS, EPOCH = int(sys.argv[1]), 10
HOLD = int(sys.argv[2]) if len(sys.argv) > 2 else -1

context = poseidon.init()
rank = context.rank
found = context.checkpoint_resumed()
begin, weights = 0, np.zeros(50000, np.float64)
if found is not None:
    begin, data = found
    step, = struct.unpack_from("<Q", data)
    assert step == begin
    weights = np.frombuffer(data, np.float64, offset=8).copy()
table = poseidon.Table("sum", weights.size, "float64", use="sum", reduce="sum")
writing = None
for step in range(begin, STEPS):
    if rank == 0:
        due = context.checkpoint_due(step)
        if due == step or (due == CHECKPOINT_EPOCH and step % EPOCH == 0 and step > begin):
            part = struct.pack("<Q", step) + weights.tobytes()
            writing = threading.Thread(target=context.checkpoint_part, args=(step, part))
            writing.start()
    if step == begin + 5 and rank == 0:
        print("offered", flush=True)
    if step == HOLD:
        while not pathlib.Path("go").exists():  # the test makes it
            threading.Event().wait(0.02)
    gradient = np.full(weights.size, (step + 1) * (rank + 1), np.float64)
    weights = weights + table.push_pull(gradient, gradient).wait() % 7919
if writing is not None:
    writing.join()
(pathlib.Path() / f"weights{rank}.bin").write_bytes(weights.tobytes())
print(f"began at {begin}", flush=True)
