# SPDX-License-Identifier: Apache-2.0
"""Random numbers in plain PyTorch scripts: what decides which sample is trained where is drawn alike on all
workers, noise is each worker's own, and a seed of the script decides both."""

import json

import pytest

from plain_jobs import BIN, fixture_job, told  # noqa: F401

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")

NOISE = """
import hashlib, json, random, sys
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
if sys.argv[1] == "seeded":
    torch.manual_seed(3); random.seed(3); np.random.seed(3)

class Augmented(Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        draws = [torch.rand(1).item(), random.random(), float(np.random.rand())]
        return index, torch.tensor(draws), torch.ones(1)

model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Augmented(), 8, shuffle=True, num_workers=int(sys.argv[2]))
noise, seen, walks = [], [], []
for epoch in range(2):
    if sys.argv[1] == "seeded" and epoch == 1:
        torch.manual_seed(4)  # as scripts do that seed every epoch
    for index, points, targets in loader:
        seen += index.tolist() if epoch == 0 else []
        noise += points.flatten().tolist() + torch.randn(2).tolist() + [random.random(), np.random.rand()]
        walk = list(range(20))
        random.shuffle(walk)
        walks += walk + torch.randperm(20).tolist() + np.random.permutation(20).tolist()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(points), targets).backward()
        optimizer.step()
print("NOISE", json.dumps(noise))
print("WALKS", json.dumps(walks))
print("SEEN", json.dumps(seen))
print("HASH", hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest())
"""


@pytest.mark.parametrize("processes", [pytest.param(0, marks=pytest.mark.all), 2])
def test_noise_is_each_workers_own_and_walks_are_everybodys(job, processes):
    """If this fails, workers train with the same noise W times, or walk through data in different orders; or
    a seed no longer makes a run that can be repeated."""
    runs = [job(NOISE, "seeded", processes) for _ in range(2)] + [job(NOISE, "unseeded", processes)]
    for done in runs:
        assert done.code == 0, done.out + done.err
        texts = [done.log(rank).decode() for rank in (0, 1)]
        noise = [json.loads(told(text, "NOISE")) for text in texts]
        assert len(noise[0]) == len(noise[1]) and not set(noise[0]) & set(noise[1])
        assert len(set(noise[0])) == len(noise[0]), "the same noise twice on one worker"
        assert told(texts[0], "WALKS") == told(texts[1], "WALKS")
        assert told(texts[0], "HASH") == told(texts[1], "HASH")
        assert sorted(json.loads(told(texts[0], "SEEN")) + json.loads(told(texts[1], "SEEN"))) == list(range(48))
    for rank in (0, 1):
        assert runs[0].log(rank) == runs[1].log(rank), "a seed does not decide everything"
        assert told(runs[0].log(rank).decode(), "NOISE") != told(runs[2].log(rank).decode(), "NOISE")


SPLIT_BY_HAND = """
import random
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)

class Images(Dataset):
    def __init__(self, names):
        self.names = names
    def __len__(self):
        return len(self.names)
    def __getitem__(self, index):
        return self.names[index], torch.ones(2), torch.ones(1)

names = list(range(120))
random.shuffle(names)
rest = np.random.permutation(names[:100]).tolist()
training, held_back = rest, names[100:]
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
seen = []
for name, points, targets in DataLoader(Images(training), 10, shuffle=True):
    seen += name.tolist()
    optimizer.zero_grad()
    nn.functional.mse_loss(model(points), targets).backward()
    optimizer.step()
with torch.no_grad():
    tested = [number for name, _, _ in DataLoader(Images(held_back), 10) for number in name.tolist()]
print("SEEN", seen)
print("TESTED", tested)
"""


def test_splits_by_random_and_numpy_without_a_seed(job):
    """If this fails, one worker trains on what another one evaluates with."""
    done = job(SPLIT_BY_HAND)
    assert done.code == 0, done.out + done.err
    texts = [done.log(rank).decode() for rank in (0, 1)]
    seen = [json.loads(told(text, "SEEN")) for text in texts]
    tested = json.loads(told(texts[0], "TESTED"))
    assert json.loads(told(texts[1], "TESTED")) == tested
    assert sorted(seen[0] + seen[1] + tested) == list(range(120))


GAN = """
import hashlib
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
torch.manual_seed(1)
maker = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
critic = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
loss_of = nn.BCEWithLogitsLoss()
makers = torch.optim.Adam(maker.parameters(), lr=0.002, betas=(0.5, 0.999))
critics = torch.optim.Adam(critic.parameters(), lr=0.002, betas=(0.5, 0.999))
for (real,) in DataLoader(TensorDataset(torch.randn(64, 2)), 8, shuffle=True):
    critic.zero_grad()
    loss_of(critic(real), torch.ones(len(real), 1)).backward()
    made = maker(torch.randn(len(real), 4))
    loss_of(critic(made.detach()), torch.zeros(len(real), 1)).backward()
    critics.step()
    maker.zero_grad()
    loss_of(critic(made), torch.ones(len(real), 1)).backward()
    makers.step()
state = [*maker.state_dict().values(), *critic.state_dict().values()]
print("HASH", hashlib.sha256(b"".join(value.numpy().tobytes() for value in state)).hexdigest())
"""


def test_batch_normalization_with_a_backward_between_forward_and_backward(job):
    """If this fails, no GAN with batch normalization can be trained."""
    done = job(GAN)
    assert done.code == 0, done.out + done.err
    assert told(done.log(0).decode(), "HASH") == told(done.log(1).decode(), "HASH")
