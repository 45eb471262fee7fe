# SPDX-License-Identifier: Apache-2.0
"""Workers of test_cuda.py: cuda_cases.py DEVICE [WORD ...] trains some steps and leaves what it found in rankN.json.

DEVICE  cuda, cpu, or like_cuda: the way of a device without one (cuda_stand_in.py)
kill    worker 0 kills a server in the middle, twice
refuse  like_cuda: views cannot be pinned
bf16    gradients travel as bfloat16"""

import hashlib
import json
import logging
import os
import pathlib
import signal
import sys
import time

import torch
from torch import nn

import cuda_stand_in
import poseidon
import poseidon.torch as hub
from poseidon.torch import pinned
from poseidon.torch.alone import AloneEngine

DEVICE, WORDS = sys.argv[1], sys.argv[2:]
STEPS, KILLED_AT = 12, (4, 8)


class Notes(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def servers():
    """psd_run started them, as it started us."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = path.read_text().partition("(")[2].rpartition(")")[::2]
        except OSError:
            continue
        if name == "ps_server" and fields.split()[1] == str(os.getppid()):
            found.append(int(path.parent.name))
    return found


def kill_a_server():
    pid = servers()[0]
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 600
    while pid in servers():
        assert time.monotonic() < until, "a killed server stays"
        time.sleep(0.01)


notes = Notes()
logging.getLogger("poseidon").addHandler(notes)
torch.set_num_threads(1)
runtime = None
if DEVICE == "like_cuda":
    runtime = cuda_stand_in.install(refuses_views="refuse" in WORDS)
torch.backends.cuda.matmul.allow_tf32 = False
device = torch.device("cuda", 0) if DEVICE == "cuda" else torch.device("cpu")
hub.init()
torch.manual_seed(0)
# One bucket is two parts of a journey, the second not of whole pages.
model = nn.Sequential(nn.Linear(40, 1537), nn.Tanh(), nn.Linear(1537, 3001), nn.Tanh(), nn.Linear(3001, 1001), nn.Tanh(),
                      nn.Linear(1001, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
options = {"compression": hub.Compression.bf16} if "bf16" in WORDS else {}
options["bucket_bytes"] = 1 << 20
optimizer = hub.DistributedOptimizer(optimizer, model=model, **options)
for step in range(STEPS):
    if "kill" in WORDS and hub.rank() == 0 and step in KILLED_AT:
        kill_a_server()
    generator = torch.Generator().manual_seed(100 * step + hub.rank())
    points = torch.randn(8, 40, generator=generator).to(device)
    optimizer.zero_grad()
    model(points).square().mean().backward()
    optimizer.step()
values = torch.cat([parameter.detach().cpu().reshape(-1) for parameter in model.parameters()])
(engine,) = {hub.engine.engine_of(parameter) for parameter in model.parameters()}
landings = [landing for memory in engine._memories for landing in getattr(memory, "landings", {}).values()]
found = {"hash": hashlib.sha256(values.numpy().tobytes()).hexdigest(), "norm": values.double().norm().item(),
         "some": values[::9973].tolist(), "notes": notes.lines, "in_view": sum(each.in_view for each in landings),
         "buckets": len(engine.buckets), "pinned_bytes": pinned.pinned_bytes(),
         "gradient_bytes": sum(bucket.elements * bucket.wire.itemsize for bucket in engine.buckets),
         "changes": [bucket.table.view_changes() for bucket in engine.buckets if bucket.table is not None],
         "alone": isinstance(engine, AloneEngine), "rank": hub.rank()}
if DEVICE == "cuda":  # what failed before is nobody's fault now
    page = pinned.pin(device, values.data_ptr() // 4096 * 4096, 4096)
    assert page is not None and pinned.pin(device, values.data_ptr() // 4096 * 4096, 4096) is None
    torch.ones(3, device=device).sum().item()
rank = hub.rank()
poseidon.close()
found["pinned_at_end"] = pinned.pinned_bytes()
if runtime is not None:
    found |= {"registered": runtime.registered, "read": runtime.read, "left": len(runtime.pinned)}
pathlib.Path(f"rank{rank}.json").write_text(json.dumps(found), encoding="utf-8")
