# SPDX-License-Identifier: Apache-2.0
"""The witness of plain PyTorch scripts sees what would train wrong in silence, also when what prevents it is taken out:
each case breaks a copy of the Python package in one place, and runs a script that trained wrong before."""

import shutil

import pytest

from plain_jobs import BIN, HERE, TREE, fixture_job  # noqa: F401
from test_auto_end import LOOP

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")

ROLES = HERE / "plain" / "roles.py"

# As it was when the mode of the models decided at iter() which loader trains.
ROLE_BY_MODE = """
_may_train = TorchSession.may_train
def _by_mode(self, loader):
    return not (self.joined and not self.is_in_training_mode()) and _may_train(self, loader)
TorchSession.may_train = _by_mode
"""
NOT_DEALT = """
def deal(group, world, rank, *_):
    return group[0], 1.0
"""
SAMPLES_LEFT_OUT = """
_deal = deal
def deal(group, world, rank, *_):
    mine, weight = _deal(group, world, rank, *_)
    return [mine[0], *mine[:-1]], weight
"""
ONE_STREAM = """
_mixed_by_rank = _mixed
def _mixed(source, rank):
    return _mixed_by_rank(source, 0)
"""
NO_SEED = """
assert plant_in_python
def plant_in_python():
    pass
"""
WEIGHT_STAYS = """
assert Lineage.follow
Lineage.follow = lambda self: None
"""
NO_WEIGHTS = """
assert TorchSession._set_weight
TorchSession._set_weight = lambda self, weight: None
"""
RATES_NOT_COMPARED = """
assert Witness._hear_rates
Witness._hear_rates = lambda *_: None
"""
NOTHING_EXCHANGED = """
assert Engine._begin_backward and Engine.begin_missing_round
Engine._begin_backward = lambda self: None
Engine.begin_missing_round = lambda *_: None
"""

NOT_MARKED = """
assert note_refusal
def note_refusal():
    pass
"""

NOISY = LOOP.replace("model(points)", "model(points + torch.randn_like(points))")
SPLIT = """
import random
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
names = list(range(40))
random.shuffle(names)
class Images(Dataset):
    def __init__(self, names):
        self.{held} = {value}
    def __len__(self):
        return 20
    def __getitem__(self, index):
        return torch.full((2,), float(self.{held}{call})), torch.ones(1)
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
held_back = DataLoader(Images(names[20:]), 5)
for epoch in range(2):
    for points, targets in DataLoader(Images(names[:20]), 5, shuffle=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(points), targets).backward()
        optimizer.step()
    with torch.no_grad():
        sum(model(points).sum() for points, targets in held_back)
print("GOES ON")
"""
OPEN_SPLIT = SPLIT.format(held="names", value="names", call="[index]")
HIDDEN_SPLIT = SPLIT.format(held="name_of", value="names.__getitem__", call="(index)")
PLATEAU = LOOP + """
for number in range(8):
    epoch()
    optimizer.param_groups[0]["lr"] = 0.1 / (1 + number * int(os.environ["PSD_RANK"]))
print("GOES ON")
"""

HOGWILD = LOOP.replace("def epoch", "import torch.multiprocessing as processes\ndef epoch") + """
if __name__ == "__main__":
    model.share_memory()
    children = [processes.Process(target=epoch) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    torch.save(model.state_dict(), "model.pt")
"""

CASES = {
    "role by mode": ("auto/torch/session.py", ROLE_BY_MODE, (ROLES, "late", 8, 96, 18),
                     "several workers train on the same samples of a loader of TensorDataset in one step"),
    "weights that do not travel": ("auto/torch/lineage.py", WEIGHT_STAYS, (ROLES, "ahead", 8, 90, 18),
                                   "the workers' batches do not count in the mean by their samples"),
    "weights that stay behind": ("auto/torch/lineage.py", WEIGHT_STAYS, (ROLES, "cycle", 8, 90, 18),
                                 "the workers' batches do not count in the mean by their samples"),
    "no weights": ("auto/torch/session.py", NO_WEIGHTS, (ROLES, "late", 8, 90, 18),
                   "the workers' batches do not count in the mean by their samples"),
    "not dealt": ("auto/torch/shards.py", NOT_DEALT, (LOOP + "epoch()",),
                  "several workers train on the same samples"),
    "samples left out": ("auto/torch/shards.py", SAMPLES_LEFT_OUT, (LOOP + "epoch()\nepoch()",),
                         "in an epoch some samples were left out"),
    "one stream of noise": ("auto/torch/streams.py", ONE_STREAM, (NOISY + "epoch()",),
                            "several workers draw the same random numbers"),
    "splits without a seed": ("auto/common/seeds.py", NO_SEED, (OPEN_SPLIT,),
                              "its training data are not the same on all workers"),
    "hidden splits without a seed": ("auto/common/seeds.py", NO_SEED, (HIDDEN_SPLIT,),
                                     "the workers do not evaluate with the same data"),
    "learning rates not compared": ("auto/common/witness.py", RATES_NOT_COMPARED, (PLATEAU,),
                                    "the workers' weights have drifted apart"),
    "children that leave no mark": ("auto/common/children.py", NOT_MARKED, (HOGWILD,),
                                    "it trained in processes that it started itself, which were stopped"),
    "nothing exchanged": ("torch/engine.py", NOTHING_EXCHANGED, (LOOP + "epoch()",),
                          "nothing has been exchanged with the other workers"),
}
QUICK = ("role by mode", "weights that do not travel")


@pytest.fixture(name="broken")
def fixture_broken(tmp_path):
    """Makes a psd_run whose Python package has more lines at the end of one file."""

    def make(file, lines):
        (tmp_path / "bin").mkdir()
        for name in ("psd_run", "ps_master", "ps_server"):
            shutil.copy((BIN / name).resolve(), tmp_path / "bin" / name)
        package = tmp_path / "python" / "poseidon"
        shutil.copytree(TREE / "python" / "poseidon", package, ignore=shutil.ignore_patterns("__pycache__"))
        with open(package / file, "a", encoding="utf-8") as source:
            source.write(lines)
        return tmp_path / "bin" / "psd_run"

    return make


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.all)
                                  for name in CASES])
def test_what_would_train_wrong_in_silence_is_seen(job, broken, name):
    """If this fails, a fault in what deals data out trains other people's scripts wrong, and nobody sees it."""
    file, lines, (script, *arguments), reason = CASES[name]
    done = job(script, *arguments, psd_run=broken(file, lines))
    assert done.code == 2, done.out + done.err
    assert reason in done.err, done.out + done.err
    assert "GOES ON" not in done.out and "verified" not in done.err


def test_with_a_warning_the_job_goes_on(job):
    """If this fails, --auto warn stops what it should go on with, floods the console, or claims that all is well."""
    done = job(PLATEAU, options=("--auto=warn",))
    assert done.code == 0, done.out + done.err
    assert done.out.count("GOES ON") == 2
    for reason in ("is trained wrong: the workers' learning rates differ", "is trained wrong: the workers' weights"):
        assert done.err.count(reason) == 1, done.err
    assert "not right: learning rates, weights" in done.err and "verified" not in done.err
