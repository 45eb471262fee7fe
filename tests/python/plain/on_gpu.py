# SPDX-License-Identifier: Apache-2.0
"""A loop on a GPU, as anybody writes it. Distributed, the hook's own part of a step must not wait for the device: any call
that would is an error there. Prints how far the weights have come, and whether the hook was looked at.

    on_gpu.py BATCH [skew]    skew: worker 1's weights are changed in the middle, on the device"""

import contextlib
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, SKEW = int(sys.argv[1]), "skew" in sys.argv
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = False
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = TensorDataset(torch.randn(256, 16), torch.randint(0, 4, (256,)))
loader = DataLoader(data, BATCH, shuffle=True, pin_memory=False)


@contextlib.contextmanager
def nobody_waits():
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def watch_hook():
    """From now on the witness's part of a step may not wait for the device, nor may the exchange of gradients."""
    from _poseidon_auto.torch.checks import Checks
    from poseidon.torch.engine import Engine

    for owner, names in ((Checks, ("begin", "leave", "end")), (Engine, ("_push", "synchronize"))):
        for name in names:
            def guarded(*args, own=getattr(owner, name), **kwargs):
                with nobody_waits():
                    return own(*args, **kwargs)

            setattr(owner, name, guarded)


steps = 0
for _ in range(3):
    for points, classes in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(points.cuda()), classes.cuda()).backward()
        optimizer.step()
        steps += 1
        if steps == 1 and "_poseidon_auto" in sys.modules and "PSD_LIB" in os.environ:
            watch_hook()
            print("WATCHED", flush=True)
        if SKEW and steps == 5 and os.environ.get("PSD_RANK") == "1":
            with torch.no_grad():
                model[0].weight += 0.1
print("WEIGHTS", [round(value, 5) for value in torch.cat([each.detach().reshape(-1) for each in model.parameters()])
                  [::97].tolist()], flush=True)
