# SPDX-License-Identifier: Apache-2.0
"""poseidon.torch.Checkpoint: scripts that train by poseidon.torch, killed as a whole, go on from psd_run's checkpoints."""

import random
import re
import sys

import pytest

from test_auto_resume import ended, kill_at, script_in, start, told

SCRIPT = """
import hashlib, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
import poseidon.torch as psd
torch.set_num_threads(1)
psd.init()
torch.manual_seed(1 + psd.rank())
model = psd.DataParallel(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
points = torch.linspace(-1, 1, 4 * 96).reshape(96, 4)
data = TensorDataset(points, points.square().sum(1, keepdim=True))
loader = DataLoader(data, 4, sampler=DistributedSampler(data, psd.size(), psd.rank()), num_workers=0)
shuffled = DataLoader(data, 8, shuffle=True)
state = psd.Checkpoint(model=model, optimizer=optimizer, scheduler=scheduler, total=0.0NAMES)
print("BEGAN", state.epoch, state.batch, state.resumed, flush=True)
for epoch in state.epochs(3):
    loader.sampler.set_epoch(epoch)
    for inputs, targets in state.batches(loader if epoch % 2 else shuffled):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs + 0.01 * torch.randn(4)), targets)
        loss.backward()
        optimizer.step()
        scheduler.step()
        state.total += loss.item()
        time.sleep(float(sys.argv[1]))
print("SHA", hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in model.parameters())).hexdigest())
if psd.rank() == 0:
    print("TOTAL", state.total)
"""


@pytest.mark.parametrize("every", ["5steps", pytest.param("epoch", marks=pytest.mark.all)])
def test_a_script_ends_like_the_run_that_was_left_alone(tmp_path, every):
    """If this fails, a script with poseidon.torch.Checkpoint goes on with other weights, data or random numbers than it had."""
    path, saved = script_in(tmp_path / "script", SCRIPT.replace("NAMES", "")), tmp_path / "saved"
    whole = ended(start(tmp_path / "whole", path, 0))
    job = start(tmp_path / "first", path, 0.03, options=["--checkpoint", saved, "--checkpoint_every", every])
    kill_at(job, saved, random.randint(1, 4) if every == "5steps" else 1)
    again = ended(start(tmp_path / "again", path, 0, options=["--resume", saved]))
    assert "BEGAN 0 0" not in again.stdout()
    assert len(told(whole)) == 2 and told(again) == told(whole), whole.stdout() + again.stdout()
    assert told(again, "TOTAL") == told(whole, "TOTAL")
    for text, said in (("NAMES", ", more=1"), ("NAMES", ", steps=1")):
        other = script_in(tmp_path / f"other{len(said)}", SCRIPT.replace(text, said))
        wrong = start(tmp_path / f"wrong{len(said)}", other, 0, options=["--resume", saved])
        assert wrong.wait(120) != 0
        output = wrong.stdout() + wrong.stderr()
        assert re.search("the checkpoint has model, optimizer, scheduler, total, the script gives|that name means something else",
                         output), output


SHORT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import poseidon.torch as psd
torch.set_num_threads(1)
psd.init()
model = psd.DataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
loader = DataLoader(TensorDataset(torch.ones(80, 4), torch.ones(80, 1)), 4)
state = psd.Checkpoint(model=model, optimizer=optimizer, large=torch.zeros(16 << 20))
for epoch in state.epochs(1):
    for inputs, targets in state.batches(loader):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
"""


def test_a_script_that_ends_has_its_last_epoch_saved(tmp_path):
    """If this fails, a script leaves the library while its part of the last checkpoint is being written."""
    saved = tmp_path / "saved"
    ended(start(tmp_path / "job", script_in(tmp_path / "script", SHORT), 0, python=sys.executable,
                options=["--checkpoint", saved, "--checkpoint_every", "epoch"]))
    assert (saved / "manifest-1.json").exists(), list(saved.iterdir())
    assert not list(saved.glob(".part*"))


ROWS = """
import torch
from torch import nn
import poseidon.torch as psd
torch.set_num_threads(1)
psd.init()
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = psd.EmbeddingBag("bag", 4, mode="sum", rule="adagrad", learning_rate=0.1, init="uniform", init_value=0.1, seed=1)
        self.top = nn.Linear(4, 1)
    def forward(self, ids):
        return self.top(self.bag(ids, torch.arange(8)))
model = psd.DataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    optimizer.zero_grad()
    model(torch.arange(8) + step).square().mean().backward()
    optimizer.step()
"""


def test_weights_that_are_in_no_checkpoint_are_told_of(tmp_path):
    """If this fails, rows of a model go on from a checkpoint beside weights that begin anew, and nobody says so."""
    path, saved = script_in(tmp_path / "script", ROWS), tmp_path / "saved"
    first = ended(start(tmp_path / "first", path, 0, options=["--checkpoint", saved, "--checkpoint_every", "5steps"]))
    again = ended(start(tmp_path / "again", path, 0, options=["--resume", saved]))
    lines = [line for line in (again.stdout() + again.stderr()).splitlines() if "has nothing of this model" in line]
    assert len(lines) == 1 and "poseidon.torch.Checkpoint" in lines[0], again.stdout() + again.stderr()
    assert "has nothing of this model" not in first.stdout() + first.stderr()
